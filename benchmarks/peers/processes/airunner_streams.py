"""Lines of an airunner job, through its client; many at once are in batches of 50, as workers send them."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

from airunner import AsyncClient, Event, JobParams, Output
from benchmarks.samples import LINE, output_of

_BATCH = 50
_INSTANT = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class _Held:
    """A job in our own hands, to publish for it without a worker."""

    client: AsyncClient
    job_id: str
    token: str


_held: list[_Held] = []


async def open_stream() -> None:
    """Connect, and claim a job."""
    client = AsyncClient(os.environ["BENCH_AIRUNNER"])
    await client.enqueue(JobParams(command="true"))
    (dequeued,) = await client.dequeue("default")
    _held.append(_Held(client, dequeued.job.job_id, dequeued.task_token))


async def publish(number: int) -> None:
    """Store one line."""
    await _held[0].client.publish_events(_held[0].token, [_event(number)])


async def fill(lines: int) -> None:
    """Store many lines, as the batches of a worker."""
    for events in output_of(lines // _BATCH, _BATCH):
        await _held[0].client.publish_events(_held[0].token, events)


async def watch(lines: int) -> AsyncIterator[int]:
    """Yield the number of each line as it arrives."""
    async with aclosing(_held[0].client.monitor(_held[0].job_id)) as events:
        async for event in events:
            yield _number(event)
            if event.sequence == lines:
                return


async def replay(first: int) -> int:
    """Read from a number on; return how many lines there were."""
    events = _held[0].client.monitor(_held[0].job_id, from_sequence=first, follow=False)
    return len([_number(event) async for event in events])


async def close_stream() -> None:
    """Hang up."""
    await _held.pop().client.aclose()


def _event(number: int) -> Event:
    return Event(sequence=number, timestamp=_INSTANT, data=Output(output=LINE))


def _number(event: Event) -> int:
    if not isinstance(event.data, Output) or event.data.output != LINE:
        raise RuntimeError("a line is not what was stored")
    return event.sequence
