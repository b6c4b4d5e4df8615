"""`airunner submit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from airunner.cli.execution_options import SERVERS_EXECUTION, ExecutionOptions
from airunner.cli.exit_codes import ExitCode, of_result
from airunner.cli.job_options import PLAIN_JOB, Command, JobOptions
from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions
from airunner.cli.printing import print_json
from airunner.cli.session import with_client
from airunner.cli.standard_input import refuse_piped_input

if TYPE_CHECKING:
    from airunner.client import AsyncClient
    from airunner.domain.requests import EnqueueRequest


def submit(
    *command: Command,
    job: JobOptions = PLAIN_JOB,
    execution: ExecutionOptions = SERVERS_EXECUTION,
    wait: Annotated[bool, Parameter(help="Wait for the job to end, and exit with its exit code.")] = False,
    connection: ConnectionOptions = ANY_SERVER,
    as_json: AsJson = False,
) -> int:
    """Add a job to a queue and print its id: airunner submit [REPOSITORY] [options] -- CMD ARGS."""
    request = job.request(command, execution.override())
    refuse_piped_input()
    return with_client(connection, lambda client: _submit(client, request, wait=wait, as_json=as_json))


async def _submit(client: AsyncClient, request: EnqueueRequest, *, wait: bool, as_json: bool) -> int:
    from airunner.cli.json_schema import job_to_json
    from airunner.domain.outcomes import single

    enqueued = single(await client.enqueue_jobs([request]))
    if not as_json:
        print(enqueued.job_id, flush=True)
    ended = await client.wait_for_end(enqueued.job_id) if wait else None
    if as_json:
        print_json("job", job_to_json(ended or await client.get_job(enqueued.job_id)))
    return of_result(ended.result) if ended and ended.result else ExitCode.OK
