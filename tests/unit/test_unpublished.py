"""Events between memory and disk, on a real file."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.domain.batching import unpack
from airunner.domain.event import Event, OutputBatch
from airunner.worker.publishing.spool import SPOOL_MAX_BYTES, Spool
from airunner.worker.publishing.spool_folder import SpoolFolder
from airunner.worker.publishing.unpublished import UnpublishedEvents, event_bytes
from tests.support.spools import JOB_ID, NOW, batches, files_limited_to, in_background, single_file

SIZE = event_bytes(batches(1)[0])


def new_waiting(folder: Path, max_bytes: int = SPOOL_MAX_BYTES) -> UnpublishedEvents:
    """Room for 4 batches in memory; blocks of 2."""
    spool = Spool(SpoolFolder(folder), JOB_ID, 1, max_bytes=max_bytes)
    return UnpublishedEvents(in_background(spool), memory_bytes=4 * SIZE, block_bytes=2 * SIZE)


async def fill(waiting: UnpublishedEvents, events: list[Event]) -> None:
    """Append as a producer does that may go on only after `spill`."""
    for event in events:
        if waiting.full:
            await spill(waiting)
        await append(waiting, event)


async def append_until_full(waiting: UnpublishedEvents, upcoming: Iterator[Event]) -> int:
    """Append until even `spill` makes no room; return how many events went in."""
    for count in itertools.count():
        if waiting.full:
            await spill(waiting)
            if is_full(waiting):
                return count
        await append(waiting, next(upcoming))
    raise AssertionError


async def append(waiting: UnpublishedEvents, event: Event) -> None:
    """Append an event, and let the disk be done with it."""
    waiting.append(event)
    await settled(waiting)


async def spill(waiting: UnpublishedEvents) -> None:
    waiting.spill()
    await settled(waiting)


async def settled(waiting: UnpublishedEvents) -> None:
    while waiting._write:
        await asyncio.wait({waiting._write})


def is_full(waiting: UnpublishedEvents) -> bool:
    """Ask anew: what was known of a property is not known any more after a call."""
    return waiting.full


async def drain(waiting: UnpublishedEvents, max_bytes: int = 3 * SIZE) -> list[Event]:
    drained: list[Event] = []
    while call := await waiting.head(max_bytes):
        drained += call
        await waiting.drop_before(call[-1].last_sequence + 1)
    return drained


async def test_without_spilling_nothing_touches_the_disk(tmp_path: Path) -> None:
    waiting, events = new_waiting(tmp_path), batches(5)
    for event in events:
        assert not waiting.full
        waiting.append(event)
    assert waiting.full
    assert list(tmp_path.iterdir()) == []
    assert await waiting.all() == events


@pytest.mark.parametrize("count", range(4, 12))
async def test_order_is_kept_between_memory_and_disk(tmp_path: Path, count: int) -> None:
    waiting, events = new_waiting(tmp_path), batches(count)
    await fill(waiting, events)
    assert (len(waiting), waiting.size_bytes) == (count, sum(map(event_bytes, events)))
    assert bool(list(tmp_path.iterdir())) == (count >= 7)
    assert await drain(waiting) == events
    assert (len(waiting), waiting.size_bytes) == (0, 0)
    assert not waiting
    assert list(tmp_path.iterdir()) == []


async def test_the_last_events_come_back_from_the_disk_for_the_end(tmp_path: Path) -> None:
    waiting, events = new_waiting(tmp_path), batches(30)
    await fill(waiting, events)
    await waiting.drop_before(events[20].sequence)
    assert await waiting.all() == events[20:]
    assert list(tmp_path.iterdir()) == []
    assert await drain(waiting) == events[20:]


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["append", "spill", "drop", "settle"]), st.integers(1, 12)), max_size=40
    )
)
def test_whatever_is_appended_spilled_and_dropped_nothing_is_lost_repeated_or_moved(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    asyncio.run(check_steps(tmp_path_factory.mktemp("spool"), steps))


async def check_steps(folder: Path, steps: list[tuple[str, int]]) -> None:
    waiting = new_waiting(folder, max_bytes=1000)
    model: list[Event] = []
    upcoming = iter(batches(12 * 40))
    for step, amount in steps:
        if step == "append":
            for event in (next(upcoming) for _ in range(amount)):
                waiting.append(event)
                model += unpack(event)
        elif step == "spill":
            waiting.spill()
        elif step == "settle":
            await settled(waiting)
        else:
            sequence = (model[0].sequence if model else 1) + amount
            await waiting.drop_before(sequence)
            model = [event for event in model if event.sequence >= sequence]
        head = [single for event in await waiting.head(2 * SIZE) for single in unpack(event)]
        assert head == model[: len(head)]
        assert bool(head) == bool(model) == bool(waiting)
    assert [single for event in await waiting.all() for single in unpack(event)] == model


async def test_a_spooled_batch_is_dropped_up_to_the_middle(tmp_path: Path) -> None:
    waiting, events = new_waiting(tmp_path), batches(12)
    await fill(waiting, events)
    sequence = events[7].sequence + 2
    await waiting.drop_before(sequence)
    first, second = await waiting.head(2 * SIZE)
    assert isinstance(first.data, OutputBatch)
    assert (first.sequence, first.timestamp) == (sequence, NOW + sequence)
    assert first.data.outputs == events[7].data.outputs[2:]  # type: ignore[union-attr]  # batches, all of them
    assert second == events[8]


async def test_a_full_spool_makes_it_full_until_events_are_dropped(tmp_path: Path) -> None:
    waiting, events = new_waiting(tmp_path, max_bytes=1200), batches(60)
    upcoming = iter(events)
    written = await append_until_full(waiting, upcoming)
    assert written < 30
    assert single_file(tmp_path).stat().st_size <= 1200
    drained: list[Event] = []
    while waiting.full:
        drained += await waiting.head(0)
        await waiting.drop_before(drained[-1].last_sequence + 1)
    # Those that were in memory, and a block.
    assert len(drained) <= 5 + 2
    await fill(waiting, [next(upcoming)])
    assert drained + await drain(waiting) == events[: written + 1]


async def test_a_full_disk_leaves_events_in_memory_which_is_then_full(tmp_path: Path) -> None:
    waiting, events = new_waiting(tmp_path), batches(12)
    with files_limited_to(20):
        await fill(waiting, events[:5])
        await spill(waiting)
        assert not waiting.full
        await append(waiting, events[5])
        await append(waiting, events[6])
        await spill(waiting)
        assert is_full(waiting)
        assert list(tmp_path.iterdir()) == []
    await spill(waiting)
    assert not is_full(waiting)
    assert single_file(tmp_path).stat().st_size > 20
    await fill(waiting, events[7:])
    assert await drain(waiting) == events


async def test_a_refused_block_does_not_let_more_in_again_and_again(tmp_path: Path) -> None:
    waiting, taken = new_waiting(tmp_path), 0
    with files_limited_to(20):
        for event in batches(50):
            await waiting.head(SIZE)  # as somebody does who tries to send it
            await spill(waiting)
            if not waiting.full:
                waiting.append(event)
                taken += 1
    assert taken < 10


async def test_what_gathers_for_the_spool_can_be_had_without_it(tmp_path: Path) -> None:
    spool = Spool(SpoolFolder(tmp_path), JOB_ID, 1)
    waiting, events = (
        UnpublishedEvents(in_background(spool), memory_bytes=0, block_bytes=2 * SIZE),
        batches(2),
    )
    await fill(waiting, events)
    assert await drain(waiting) == events


async def test_when_the_spool_is_read_up_memory_is_used_again(tmp_path: Path) -> None:
    waiting, events = new_waiting(tmp_path), batches(20)
    await fill(waiting, events[:12])
    await waiting.drop_before(events[11].sequence)
    for event in events[12:15]:
        waiting.append(event)
        assert list(tmp_path.iterdir()) == []
    await fill(waiting, events[15:])
    assert list(tmp_path.iterdir())
    await waiting.close()
    assert list(tmp_path.iterdir()) == []
