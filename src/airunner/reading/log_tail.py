"""Reading the stored output of a job as lines: all of it, or from its end."""

from __future__ import annotations

from collections import deque
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from airunner.cli.printing import say
from airunner.domain.event import EventType, Gap
from airunner.domain.requests import StreamRequest
from airunner.reading.log_lines import LineAssembly

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from airunner.client import AsyncClient
    from airunner.domain.job import Job
    from airunner.reading.log_lines import LogLine

_FILTER: Final = frozenset({EventType.OUTPUT_DATA, EventType.GAP})
_FIRST_REACH: Final = 64
# Beyond this nobody looks for the beginning of a line whose end is among the wanted ones.
_MOST_FOR_A_BEGINNING: Final = 4096


async def read_lines(client: AsyncClient, job_id: str, attempt: int = 0) -> AsyncGenerator[LogLine, None]:
    """Yield the stored lines of a job, or of one attempt, in order; what is lost is said."""
    request = StreamRequest(job_id=job_id, attempt=attempt, event_filter=_FILTER, follow=False)
    async with aclosing(_lines(client, request, _say_lost)) as lines:
        async for line in lines:
            yield line


async def read_last_lines(
    client: AsyncClient, job: Job, attempt: int, count: int, wants: Callable[[LogLine], bool]
) -> Sequence[LogLine]:
    """Return the last wanted lines, in order.

    They are looked for from the end, further back only while they do not suffice. Only the end of the
    current attempt is known; an earlier one is read whole.
    """
    found: list[LogLine] = []
    for number in [attempt] if attempt else range(job.attempt, 0, -1):
        missing = count - len(found)
        if missing <= 0:
            break
        found[:0] = await _last_of_attempt(client, job, number, missing, wants)
    return found


async def _last_of_attempt(
    client: AsyncClient, job: Job, attempt: int, count: int, wants: Callable[[LogLine], bool]
) -> Sequence[LogLine]:
    last = job.life.last_sequence if attempt == job.attempt else 0
    reach = max(_FIRST_REACH, 2 * count)
    while True:
        first = max(1, last - reach + 1) if last else 1
        request = StreamRequest(
            job_id=job.job_id, attempt=attempt, from_sequence=first, event_filter=_FILTER, follow=False
        )
        kept: deque[LogLine] = deque(maxlen=count)
        lost: list[Gap] = []
        async with aclosing(_lines(client, request, lost.append, from_start=first == 1)) as lines:
            async for line in lines:
                if wants(line):
                    kept.append(line)
        whole = all(line.starts for line in kept) or reach > count + _MOST_FOR_A_BEGINNING
        if first == 1 or (len(kept) == count and whole):
            for gap in lost:
                _say_lost(gap)
            return kept
        reach *= 8


async def _lines(
    client: AsyncClient, request: StreamRequest, on_gap: Callable[[Gap], None], *, from_start: bool = True
) -> AsyncGenerator[LogLine, None]:
    assembly = LineAssembly(from_start=from_start)
    async with aclosing(client.monitor(request)) as events:
        async for event in events:
            if isinstance(event.data, Gap):
                on_gap(event.data)
            for line in assembly.feed(event):
                yield line
    for line in assembly.finish():
        yield line


def _say_lost(gap: Gap) -> None:
    say(f"events {gap.first_sequence} to {gap.last_sequence} are lost: {gap.reason}")
