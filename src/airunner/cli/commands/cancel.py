"""`airunner cancel`."""

from __future__ import annotations

from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions, JobId
from airunner.cli.printing import print_json, say
from airunner.cli.session import with_client


def cancel(job_id: JobId, /, *, connection: ConnectionOptions = ANY_SERVER, as_json: AsJson = False) -> None:
    """Cancel a job and print its state. A running job ends once its worker has stopped it."""
    from airunner.cli.json_schema import job_to_json

    job = with_client(connection, lambda client: client.cancel_job(job_id))
    if as_json:
        print_json("job", job_to_json(job))
        return
    print(job.state.name)
    if not job.state.terminal:
        say("cancellation is requested; the job ends once its worker has stopped it")
