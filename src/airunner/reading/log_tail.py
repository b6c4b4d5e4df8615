"""Reading the stored output of a job as lines: all of it, or from its end."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from airunner.domain.event import EventType, Gap
from airunner.domain.requests import StreamRequest
from airunner.reading.log_lines import LineAssembly

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
    from typing import TypeAlias

    from airunner.domain.event import Event
    from airunner.domain.job import Job
    from airunner.reading.log_lines import LogLine
    from airunner.services.api import EventsApi

    # Takes the events that are lost, once for each range and in order.
    OnGap: TypeAlias = Callable[[Gap], None]

_FILTER: Final = frozenset({EventType.OUTPUT_DATA, EventType.GAP})
_FIRST_REACH: Final = 64
_REACH_FACTOR: Final = 8
# Beyond this nobody looks for the beginning of a line whose end is among the wanted ones.
_MAX_FOR_A_BEGINNING: Final = 4096


async def read_lines(
    events: AsyncGenerator[Event, None], *, on_gap: OnGap, from_start: bool = True
) -> AsyncGenerator[LogLine, None]:
    """Yield the lines of a stream of output, in order; it is closed with this one.

    `from_start` says that it begins where the output of an attempt does, and so at the beginning of a line.
    """
    assembly = LineAssembly(from_start=from_start)
    async with aclosing(events):
        async for event in events:
            for line in feed(assembly, event, on_gap):
                yield line
    for line in assembly.finish():
        yield line


def output_request(job_id: str, attempt: int = 0) -> StreamRequest:
    """Return the request for the stored output of a job, or of one attempt, and for what is lost of it."""
    return StreamRequest(job_id=job_id, attempt=attempt, event_filter=_FILTER, follow=False)


def feed(assembly: LineAssembly, event: Event, on_gap: OnGap) -> Iterator[LogLine]:
    """Take the next event of such a request; yield the lines that it ends, and then tell of a gap."""
    yield from assembly.feed(event)
    if isinstance(event.data, Gap):
        on_gap(event.data)


async def read_last_lines(
    events: EventsApi,
    job: Job,
    count: int,
    *,
    attempt: int = 0,
    wants: Callable[[LogLine], bool],
    on_gap: OnGap,
) -> Sequence[LogLine]:
    """Return the last wanted lines of a job, or of one attempt, in order.

    They are looked for from the end, further back only while they do not suffice. Only the end of the
    current attempt is known; an earlier one is read whole.
    """
    found: list[LogLine] = []
    for number in [attempt] if attempt else range(job.attempt, 0, -1):
        missing = count - len(found)
        if missing <= 0:
            break
        tail = _AttemptTail(events, job, number, on_gap)
        found[:0] = await tail.read(missing, wants)
    return found


class _AttemptTail:
    """The end of one attempt's output."""

    def __init__(self, events: EventsApi, job: Job, attempt: int, on_gap: OnGap) -> None:
        self._events = events
        self._job_id = job.job_id
        self._attempt = attempt
        self._last_sequence = job.life.last_sequence if attempt == job.attempt else 0
        self._on_gap = on_gap

    async def read(self, count: int, wants: Callable[[LogLine], bool]) -> Sequence[LogLine]:
        """Return the last wanted lines; gaps are told of once, with the read that found enough."""
        reach = max(_FIRST_REACH, 2 * count)
        while True:
            first = max(1, self._last_sequence - reach + 1) if self._last_sequence else 1
            kept: deque[LogLine] = deque(maxlen=count)
            gaps: list[Gap] = []
            async with aclosing(self._lines_from(first, gaps)) as lines:
                async for line in lines:
                    if wants(line):
                        kept.append(line)
            whole = all(line.starts for line in kept) or reach > count + _MAX_FOR_A_BEGINNING
            if first == 1 or (len(kept) == count and whole):
                for gap in gaps:
                    self._on_gap(gap)
                return kept
            reach *= _REACH_FACTOR

    def _lines_from(self, sequence: int, gaps: list[Gap]) -> AsyncGenerator[LogLine, None]:
        request = StreamRequest(
            job_id=self._job_id,
            attempt=self._attempt,
            from_sequence=sequence,
            event_filter=_FILTER,
            follow=False,
        )
        events = self._events.stream_events(request)
        return read_lines(events, on_gap=gaps.append, from_start=sequence == 1)
