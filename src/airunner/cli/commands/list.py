"""`airunner list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions
from airunner.cli.printing import hint, moment, print_json, print_table
from airunner.cli.session import with_client

if TYPE_CHECKING:
    from airunner.domain.job import JobState
    from airunner.domain.listing import JobPage


def list_jobs(
    *,
    queue: Annotated[str, Parameter(help="Only jobs of this queue.")] = "",
    state: Annotated[
        str, Parameter(help="Only jobs in this state: scheduled, running, completed, failed or cancelled.")
    ] = "",
    page: Annotated[int, Parameter(help="Number of the page, starting at 1.")] = 1,
    page_size: Annotated[int, Parameter(help="Number of jobs on a page, up to 500. Default: 20")] = 20,
    cursor: Annotated[str, Parameter(help="Continue after the page that printed this cursor.")] = "",
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    from airunner.domain.listing import JobQuery

    query = JobQuery(
        queue=queue, state=_state(state) if state else None, page=page, page_size=page_size, cursor=cursor
    )
    found = with_client(connection, lambda client: client.list_jobs(query))
    _print_as_json(found) if as_json else _print_for_people(found)


def _state(text: str) -> JobState:
    from airunner.domain.errors import InvalidArgument
    from airunner.domain.job import JOB_STATES

    states = {state.name.lower(): state for state in JOB_STATES}
    try:
        return states[text.lower()]
    except KeyError:
        raise InvalidArgument(f"--state must be one of {', '.join(states)}, not {text!r}") from None


def _print_as_json(found: JobPage) -> None:
    from airunner.cli.json_schema import job_to_json

    for job in found.jobs:
        print_json("job", job_to_json(job))
    print_json("page", {"next_cursor": found.next_cursor, "last_page": found.last_page})


def _print_for_people(found: JobPage) -> None:
    from airunner.cli.job_text import command_line

    rows = [
        (job.job_id, job.queue, job.state.name, moment(job.created_at), command_line(job))
        for job in found.jobs
    ]
    print_table(("job", "queue", "state", "created", "command"), rows)
    if found.next_cursor:
        hint(f"more with --cursor {found.next_cursor}")
