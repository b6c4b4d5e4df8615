"""`airunner monitor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from airunner.cli.options import ANY_SERVER, AsJson, Connection, JobId
from airunner.cli.printing import hint
from airunner.cli.session import with_clients

if TYPE_CHECKING:
    from airunner.cli.event_view import ViewOptions
    from airunner.cli.verdicts import Ending
    from airunner.client import AsyncClient
    from airunner.domain.event import EventType
    from airunner.services.api import StreamRequest


def monitor(
    job_id: JobId,
    /,
    *,
    from_sequence: Annotated[int, Parameter(help="Begin at this event of the current attempt.")] = 0,
    from_timestamp: Annotated[
        str, Parameter(help="Begin at this time: ISO 8601, or milliseconds since 1970.")
    ] = "",
    event_type: Annotated[
        tuple[str, ...],
        Parameter(help="Only such: output, process_start, process_end, process_error, gap, progress."),
    ] = (),
    attempt: Annotated[int, Parameter(help="Only this attempt.")] = 0,
    no_follow: Annotated[bool, Parameter(help="Show what is there, and do not wait for more.")] = False,
    timestamps: Annotated[bool, Parameter(help="Put the time in front of each line.")] = False,
    playback: Annotated[bool, Parameter(help="Show events at the pace they happened.")] = False,
    slow: Annotated[bool, Parameter(help="Playback with doubled delays.")] = False,
    speed: Annotated[str, Parameter(help="Playback that many times as fast, such as 2x.")] = "",
    fast: Annotated[bool, Parameter(help="No delays; this is the default.")] = False,
    raw: Annotated[bool, Parameter(help="Every byte as it is, also on a terminal.")] = False,
    verify: Annotated[bool, Parameter(help="End with what is proven: complete, partial or a gap.")] = False,
    as_json: AsJson = False,
    connection: Connection = ANY_SERVER,
) -> int:
    """Show the output of a job, live or again, until the job ends.

    Its standard output goes to standard output, its standard error to standard error; on a terminal, other
    control sequences than colours are taken out. The exit code is 0 however the job ended, but 1 if events
    are missing or the output is not what the worker made a digest of.
    """
    from airunner.cli.event_view import ViewOptions
    from airunner.cli.instants import from_text
    from airunner.cli.playback import choose_factor
    from airunner.cli.verdicts import Ending
    from airunner.services.api import StreamRequest

    factor = choose_factor(playback=playback, slow=slow, speed=speed, fast=fast)
    request = StreamRequest(
        job_id=job_id,
        from_sequence=from_sequence,
        from_timestamp=from_text(from_timestamp, "--from-timestamp") if from_timestamp else 0,
        event_filter=event_types(event_type),
        attempt=attempt,
        follow=not no_follow,
    ).validate()
    options = ViewOptions(raw=raw, timestamps=timestamps, as_json=as_json)
    ending = Ending(as_json=as_json, asked=verify)
    return with_clients(
        connection, lambda hasty, patient: _monitor(hasty, patient, request, options, ending, factor)
    )


def event_types(names: tuple[str, ...]) -> frozenset[EventType]:
    """Return the event types of their names."""
    from airunner.domain.errors import InvalidArgument
    from airunner.domain.event import EventType

    known = {kind.name.lower(): kind for kind in EventType} | {"output": EventType.OUTPUT_DATA}
    wanted = [name.strip().lower() for entry in names for name in entry.split(",")]
    for name in wanted:
        if name not in known:
            raise InvalidArgument(f"--event-type must be one of {', '.join(sorted(known))}, not {name!r}")
    return frozenset(known[name] for name in wanted)


async def _monitor(
    hasty: AsyncClient,
    patient: AsyncClient,
    request: StreamRequest,
    options: ViewOptions,
    ending: Ending,
    factor: float,
) -> int:
    from airunner.cli.event_view import open_view
    from airunner.cli.exit_codes import ExitCode
    from airunner.cli.following import follow
    from airunner.cli.verdicts import final_position, open_proof

    job = await hasty.get_job(request.job_id)
    view = open_view(job.job_id, options, job.result.final_sequence if job.result else 0)
    proof = open_proof(request)
    await follow(patient, request, view, proof, factor)
    if job.result is None and request.follow:
        job = await patient.get_job(request.job_id)
    hint(f"job {job.job_id} is {job.state.name}")
    verdict = proof.verdict(final_position(job, request))
    ending.tell(job.job_id, verdict)
    return ExitCode.FAILED if verdict.broken else ExitCode.OK
