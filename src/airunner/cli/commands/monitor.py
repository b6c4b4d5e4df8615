"""`airunner monitor`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from airunner.cli.options import ANY_SERVER, AsJson, ConnectionOptions, JobId
from airunner.cli.printing import hint, say
from airunner.cli.session import with_clients

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airunner.cli.proof_report import ProofReport
    from airunner.cli.screen.event_view import EventView, ViewOptions
    from airunner.client import AsyncClient
    from airunner.domain.event import EventType
    from airunner.domain.job import Job
    from airunner.domain.requests import StreamRequest
    from airunner.reading.playback import Playback


def monitor(
    job_id: JobId,
    /,
    *more: Annotated[str, Parameter(help="Ids of more jobs to show at the same time.")],
    from_sequence: Annotated[int, Parameter(help="Start at this event of the current attempt.")] = 0,
    from_timestamp: Annotated[
        str, Parameter(help="Start at this time: ISO 8601, or milliseconds since 1970.")
    ] = "",
    event_type: Annotated[
        tuple[str, ...],
        Parameter(
            help="Show only events of this type: output, process_start, process_end, process_error, gap or "
            "progress. Repeatable."
        ),
    ] = (),
    attempt: Annotated[int, Parameter(help="Show only this attempt.")] = 0,
    no_follow: Annotated[bool, Parameter(help="Show what is stored, and do not wait for more.")] = False,
    timestamps: Annotated[bool, Parameter(help="Print the time before each line.")] = False,
    playback: Annotated[bool, Parameter(help="Show events at the pace at which they were recorded.")] = False,
    slow: Annotated[bool, Parameter(help="Play back with doubled delays.")] = False,
    speed: Annotated[str, Parameter(help="Play back that many times as fast, such as 2x.")] = "",
    fast: Annotated[bool, Parameter(help="Show events without delays (the default).")] = False,
    seek: Annotated[
        str, Parameter(help="Play back from this point of the recorded time: 1m30s, seconds or 50%.")
    ] = "",
    raw: Annotated[bool, Parameter(help="Show every byte as it is, also on a terminal.")] = False,
    verify: Annotated[
        bool, Parameter(help="End with a verdict on the log: complete, partial, gap and so on.")
    ] = False,
    as_json: AsJson = False,
    connection: ConnectionOptions = ANY_SERVER,
) -> int:
    """Show the output of a job, live or stored, until the job ends.

    Its standard output goes to standard output, its standard error to standard error; on a terminal, control
    sequences other than colours are removed. With several jobs, each line starts with the last characters of
    its job's id. The exit code is 0 however the jobs ended, but 1 if events are missing or the output differs
    from the worker's digest.

    Keys during a playback on a terminal: space pauses and resumes, left and right seek 10 s back and
    forward, + and - change the speed, q quits.
    """
    from airunner.cli.playback_options import choose_factor, parse_seek
    from airunner.cli.proof_report import ProofReport
    from airunner.cli.screen.event_view import ViewOptions
    from airunner.domain.errors import InvalidArgument
    from airunner.domain.requests import StreamRequest
    from airunner.reading.instants import parse_instant
    from airunner.reading.playback import Playback

    factor = choose_factor(playback=playback, slow=slow, speed=speed, fast=fast, seek=seek)
    if more and factor:
        raise InvalidArgument("only one job can be played back at a time")
    request = StreamRequest(
        job_id=job_id,
        from_sequence=from_sequence,
        from_timestamp=parse_instant(from_timestamp, "--from-timestamp") if from_timestamp else 0,
        event_filter=event_types(event_type),
        attempt=attempt,
        follow=not no_follow,
    ).validate()
    watch = _Watch(
        request=request,
        options=ViewOptions(raw=raw, timestamps=timestamps, as_json=as_json),
        report=ProofReport(as_json=as_json, requested=verify),
        playback=Playback(factor=factor, seek=parse_seek(seek)) if factor else None,
    )
    return with_clients(
        connection,
        lambda quick_client, client: (
            _monitor_many(quick_client, client, watch, [job_id, *more])
            if more
            else _monitor(quick_client, client, watch)
        ),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """What somebody wants to see of a job, and how."""

    request: StreamRequest
    options: ViewOptions
    report: ProofReport
    playback: Playback | None = None


async def _monitor(quick_client: AsyncClient, client: AsyncClient, watch: _Watch) -> int:
    from airunner.cli.screen.event_view import open_view

    job = await quick_client.get_job(watch.request.job_id, abridge=True)
    view = open_view(job.job_id, watch.options, job.result.final_sequence if job.result else 0)
    return await _show(client, job, view, watch, hint)


async def _monitor_many(
    quick_client: AsyncClient, client: AsyncClient, watch: _Watch, job_ids: Sequence[str]
) -> int:
    """Show several jobs at once; return the worst of the codes that they have alone."""
    import asyncio

    from airunner.cli.screen.prefixed_view import short_labels

    found = [await quick_client.get_job(job_id, abridge=True) for job_id in job_ids]
    jobs = {job.job_id: job for job in found}
    labels = short_labels(list(jobs))
    shown = (
        _show_one_of_many(client, job, number, labels[job.job_id], watch)
        for number, job in enumerate(jobs.values())
    )
    return max(await asyncio.gather(*shown))


async def _show_one_of_many(client: AsyncClient, job: Job, number: int, label: str, watch: _Watch) -> int:
    """Show one of several jobs; what goes wrong with it is told, and is not the end of the others."""
    from airunner.cli.exit_codes import of_error
    from airunner.cli.screen.event_view import JsonView
    from airunner.cli.screen.prefixed_view import PrefixedView
    from airunner.domain.errors import AirunnerError

    options = watch.options
    view = (
        JsonView(job.job_id)
        if options.as_json
        else PrefixedView(label, number, raw=options.raw, timestamps=options.timestamps)
    )
    single = replace(
        watch,
        request=replace(watch.request, job_id=job.job_id),
        report=replace(watch.report, prefix=f"{label}: "),
    )
    try:
        return await _show(client, job, view, single, say)
    except AirunnerError as error:
        say(f"{label}: {error.text}")
        return of_error(error)


async def _show(
    client: AsyncClient, job: Job, view: EventView, watch: _Watch, tell: Callable[[str], None]
) -> int:
    from airunner.cli.exit_codes import ExitCode
    from airunner.cli.screen.following import follow, play
    from airunner.reading.proof import Coverage, LogProof, final_position

    request = watch.request
    proof = LogProof(Coverage.of_request(request))
    if watch.playback is None:
        await follow(client, request, view, proof)
    elif not await play(client, request, view, proof, watch.playback):
        # Whoever quits does not ask what the rest would have proven.
        return ExitCode.OK
    if job.result is None and request.follow:
        job = await client.get_job(request.job_id, abridge=True)
    tell(f"job {job.job_id} is {job.state.name}")
    verdict = proof.verdict(final_position(job, request))
    watch.report.show(job.job_id, verdict)
    return ExitCode.FAILED if verdict.broken else ExitCode.OK
