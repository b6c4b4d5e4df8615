"""`airunner run`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from airunner.cli.execution_options import SERVERS_EXECUTION, ExecutionOptions
from airunner.cli.exit_codes import ExitCode, of_result
from airunner.cli.job_options import PLAIN_JOB, Command, JobOptions
from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions
from airunner.cli.printing import hint, print_json, say
from airunner.cli.session import with_clients
from airunner.cli.standard_input import refuse_piped_input

if TYPE_CHECKING:
    from airunner.cli.screen.event_view import ViewOptions
    from airunner.client import AsyncClient
    from airunner.domain.job import Job
    from airunner.domain.requests import EnqueueRequest
    from airunner.reading.proof import LogVerdict


def run(
    *command: Command,
    job: JobOptions = PLAIN_JOB,
    execution: ExecutionOptions = SERVERS_EXECUTION,
    timestamps: Annotated[bool, Parameter(help="Print the time before each line.")] = False,
    raw: Annotated[bool, Parameter(help="Show every byte as it is, also on a terminal.")] = False,
    as_json: AsJson = False,
    connection: ConnectionOptions = ANY_SERVER,
) -> int:
    """Run a command as a job, and exit with its exit code: airunner run [REPOSITORY] [options] -- CMD ARGS.

    Its output is shown live: standard output on standard output, standard error on standard error, and every
    byte unchanged unless they are terminals. A job has no standard input; piped input is refused. Ctrl-C only
    stops following: the job goes on.
    """
    from airunner.cli.screen.event_view import ViewOptions

    request = job.request(command, execution.override())
    refuse_piped_input()
    options = ViewOptions(raw=raw, timestamps=timestamps, as_json=as_json)
    return with_clients(connection, lambda quick_client, client: _run(quick_client, client, request, options))


async def _run(
    quick_client: AsyncClient, client: AsyncClient, request: EnqueueRequest, options: ViewOptions
) -> int:
    from airunner.cli.proof_report import ProofReport
    from airunner.domain.outcomes import single

    job_id = single(await quick_client.enqueue_jobs([request])).job_id
    hint(f"job {job_id}")
    try:
        job, verdict = await _follow_to_end(client, job_id, options)
    except asyncio.CancelledError:
        say(
            f"the job goes on; watch it with 'airunner monitor {job_id}', "
            f"or cancel it with 'airunner cancel {job_id}'"
        )
        raise
    ProofReport(as_json=options.as_json, quiet=True).show(job_id, verdict)
    code = _report(job, options)
    return code or (ExitCode.FAILED if verdict.broken else ExitCode.OK)


async def _follow_to_end(client: AsyncClient, job_id: str, options: ViewOptions) -> tuple[Job, LogVerdict]:
    from airunner.cli.screen.event_view import open_view
    from airunner.cli.screen.following import follow
    from airunner.domain.requests import StreamRequest
    from airunner.reading.proof import Coverage, LogProof, final_position

    request = StreamRequest(job_id=job_id)
    proof = LogProof(Coverage.of_request(request))
    await follow(client, request, open_view(job_id, options), proof)
    job = await client.wait_for_end(job_id)
    return job, proof.verdict(final_position(job, request))


def _report(job: Job, options: ViewOptions) -> int:
    from airunner.cli.json_schema import job_to_json
    from airunner.domain.job import Outcome

    if options.as_json:
        print_json("job", job_to_json(job))
    result = job.result
    if result is None:  # an ended job always has one
        return 0
    if result.outcome not in {Outcome.SUCCESS, Outcome.FAILURE}:
        say(": ".join(filter(None, (f"the job ended as {result.outcome.name}", result.error_message))))
    return of_result(result)
