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
    wait: Annotated[bool, Parameter(help="Wait for the job to end first.")] = False,
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> None:
    """Show one job."""

    async def read(client: AsyncClient) -> Job:
        if wait:
            await client.wait_for_end(job_id)
        return await client.get_job(job_id, want_payload_urls=as_json)

    job = with_client(connection, read)
    if as_json:
        from airunner.cli.json_schema import job_to_json

        print_json("job", job_to_json(job))
    else:
        from airunner.cli.job_text import job_fields

        print_fields(job_fields(job))
