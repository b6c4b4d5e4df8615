"""`airunner get`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions, JobId
from airunner.cli.printing import print_fields, print_json
from airunner.cli.session import with_client

if TYPE_CHECKING:
    from airunner.client import AsyncClient
    from airunner.domain.job import Job


def get(
    job_id: JobId,
    /,
    *,
    wait: Annotated[bool, Parameter(help="Wait for the job to end.")] = False,
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show one job."""

    async def read(client: AsyncClient) -> Job:
        if wait:
            await client.wait_for_end(job_id)
        return await client.get_job(job_id, want_payload_urls=as_json)

    print_job(with_client(connection, read), as_json=as_json)


def print_job(job: Job, *, as_json: bool) -> None:
    """Print a job as JSON or as fields."""
    from airunner.cli.json_schema import job_document

    if as_json:
        print_json("job", job_document(job))
    else:
        print_fields(_fields(job))


def _fields(job: Job) -> dict[str, str]:
    from airunner.cli.commands.list import command_line
    from airunner.cli.instants import to_iso

    life, result = job.life, job.result
    cancelling = " (cancel requested)" if life.cancel_requested and not job.state.terminal else ""
    fields = {
        "job": job.job_id,
        "queue": job.queue,
        "state": f"{job.state.name}{cancelling}",
        "command": command_line(job),
        "attempt": f"{job.attempt} of {life.max_attempts}",
        "created": to_iso(job.created_at),
        "updated": to_iso(life.updated_at),
        "worker": life.worker_id,
        "instance": life.instance_id,
        "visible until": to_iso(life.visible_until) if not job.state.terminal else "",
        "retried from": job.retried_from,
        "last error": life.last_error,
    }
    if result:
        fields |= {
            "outcome": result.outcome.name,
            "exit code": str(result.exit_code),
            "error": result.error_message,
            "events": str(result.final_sequence or ""),
            "output": result.output_json,
        }
    return fields
