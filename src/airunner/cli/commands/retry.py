"""`airunner retry`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions, JobId
from airunner.cli.printing import print_json
from airunner.cli.session import with_client


def retry(
    job_id: JobId,
    /,
    *,
    request_id: Annotated[
        str, Parameter(help="UUID that makes this repeatable: the same UUID gives the same new job.")
    ] = "",
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> None:
    """Add a copy of a job that has ended, and print the id of the new job."""
    from airunner.cli.json_schema import job_to_json

    job = with_client(connection, lambda client: client.retry_job(job_id, request_id))
    if as_json:
        print_json("job", job_to_json(job))
    else:
        print(job.job_id)
