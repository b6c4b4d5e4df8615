"""The Publisher while the server is away for long: on a real file, with a clock that stands still."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Coroutine
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from airunner.domain.errors import Unavailable, VisibilityLost
from airunner.domain.event import Event, Gap, OutputBatch, ProcessEnd, StreamType
from airunner.domain.requests import DequeueRequest
from airunner.testing.conditions import until
from airunner.worker.publishing.publisher import CALL_BYTES, Publisher
from airunner.worker.publishing.spool import SPOOL_MAX_BYTES, Spool
from airunner.worker.publishing.spool_folder import SpoolFolder
from airunner.worker.publishing.unpublished import event_bytes
from tests.support.publishers import Bench, lines, publishing
from tests.support.spools import files_limited_to, in_background, single_file

OUT = StreamType.STDOUT
MEMORY = 100_000
# Two of these are more than a block of the spool.
PIECE = lines(50, 6000)


def spooling(bench: Bench, folder: Path, max_bytes: int = SPOOL_MAX_BYTES) -> Publisher:
    job = bench.attempt.job
    spool = Spool(SpoolFolder(folder), job.job_id, job.attempt, max_bytes=max_bytes)
    return bench.new_publisher(waiting_bytes=MEMORY, spool=in_background(spool))


async def turns(bench: Bench) -> None:
    """Let everything happen that can, on the disk too."""
    for _ in range(3):
        for _ in range(20):
            await asyncio.sleep(0)
        while write := bench.publisher._waiting._write:
            await asyncio.wait({write})


async def let_in(bench: Bench, room: Awaitable[None] | None) -> bool:
    """Wait for room until nothing happens any more, a second of the clock included; tell whether there is."""
    if room is None:
        return True
    waiting = asyncio.ensure_future(room)
    for _ in range(2):
        await turns(bench)
        if waiting.done():
            waiting.result()
            return True
        bench.clock.advance(1)
    await turns(bench)
    if waiting.done():
        waiting.result()
        return True
    waiting.cancel()
    return False


async def print_while_away(bench: Bench, publisher: Publisher, pieces: int) -> bytes:
    """Print with the network closed; return what was printed."""
    bench.network.open.clear()
    for _ in range(pieces):
        assert await let_in(bench, publisher.add_output(PIECE, OUT))
    return b"".join(PIECE) * pieces


async def test_a_producer_goes_on_when_the_server_took_nothing_for_a_second(tmp_path: Path) -> None:
    async with publishing() as bench:
        publisher = spooling(bench, tmp_path)
        printed = await print_while_away(bench, publisher, 20)
        assert single_file(tmp_path).stat().st_size > 0
        bench.network.open.set()
        await until(lambda: not list(tmp_path.iterdir()))
        remaining = await publisher.finish()
        await bench.services.events.publish_events(bench.attempt.task_token, remaining)
        assert await bench.stored_output() == printed
        assert [event.sequence for event in await bench.stored()] == list(range(1, 1001))


async def test_a_server_that_is_there_keeps_it_from_the_disk(tmp_path: Path) -> None:
    async with publishing() as bench:
        publisher = spooling(bench, tmp_path)
        for _ in range(20):
            bench.network.open.clear()
            room = publisher.add_output(PIECE, OUT)
            assert room is not None
            waiting = asyncio.ensure_future(room)
            await turns(bench)
            bench.clock.advance(0.9)
            await turns(bench)
            assert not waiting.done()
            assert list(tmp_path.iterdir()) == []
            bench.network.open.set()
            await until(waiting.done)
        assert list(tmp_path.iterdir()) == []


async def test_the_limit_of_the_spool_pushes_back_until_the_server_takes_some(tmp_path: Path) -> None:
    async with publishing() as bench:
        bench.network.open.clear()
        publisher = spooling(bench, tmp_path, max_bytes=30_000)
        pieces = 0
        while await let_in(bench, publisher.add_output(PIECE, OUT)):
            pieces += 1
            assert pieces < 1000
        assert pieces > 3
        assert single_file(tmp_path).stat().st_size <= 30_000
        bench.network.open.set()
        again = publisher.add_output(PIECE, OUT)
        if again is not None:
            async with asyncio.timeout(30):
                await again
        remaining = await publisher.finish()
        await bench.services.events.publish_events(bench.attempt.task_token, remaining)
        assert await bench.stored_output() == b"".join(PIECE) * (pieces + 2)


async def test_a_full_disk_pushes_back_and_is_tried_again_every_second(tmp_path: Path) -> None:
    async with publishing() as bench:
        bench.network.open.clear()
        publisher = spooling(bench, tmp_path)
        with files_limited_to(10):
            for _ in range(3):
                assert await let_in(bench, publisher.add_output(PIECE, OUT))
                await turns(bench)
            room = publisher.add_output(PIECE, OUT)
            assert room is not None
            waiting = asyncio.ensure_future(room)
            for _ in range(3):
                await turns(bench)
                bench.clock.advance(1)
            await turns(bench)
            assert not waiting.done()
            assert list(tmp_path.iterdir()) == []
        bench.clock.advance(1)
        await until(waiting.done)
        assert single_file(tmp_path).stat().st_size > 10
        bench.network.open.set()
        remaining = await publisher.finish()
        await bench.services.events.publish_events(bench.attempt.task_token, remaining)
        assert await bench.stored_output() == b"".join(PIECE) * 4


async def test_the_end_streams_what_is_spooled_and_carries_the_last_of_it(tmp_path: Path) -> None:
    async with publishing() as bench:
        publisher = spooling(bench, tmp_path)
        await print_while_away(bench, publisher, 20)
        finishing = asyncio.ensure_future(
            publisher.finish([ProcessEnd(pid=1, exit_code=0, run_duration_ms=5)])
        )
        await turns(bench)
        assert not finishing.done()
        bench.network.open.set()
        remaining = await finishing
        assert list(tmp_path.iterdir()) == []
        assert len(bench.network.calls) >= 5
        assert CALL_BYTES / 2 < sum(map(event_bytes, remaining)) <= CALL_BYTES
        assert isinstance(remaining[-1].data, ProcessEnd)
        assert remaining[-1].data.event_count == 1000
        sent = [event for call in bench.network.calls[1:] for event in call]
        assert remaining[0].sequence == sent[-1].last_sequence + 1


async def test_it_resumes_where_the_server_says_in_what_is_spooled(tmp_path: Path) -> None:
    async with publishing() as bench:
        publisher = spooling(bench, tmp_path)
        # Each call arrives, and its answer is lost: the next one finds the server further on.
        bench.network.lost_answers.extend([Unavailable()] * 4)
        printed = await print_while_away(bench, publisher, 20)
        finishing = asyncio.ensure_future(publisher.finish())
        bench.network.open.set()
        async with asyncio.timeout(30):
            while not finishing.done():
                await turns(bench)
                bench.clock.advance(10)
        remaining = await finishing
        await bench.services.events.publish_events(bench.attempt.task_token, remaining)
        assert not bench.network.lost_answers
        assert await bench.stored_output() == printed
        assert [event.sequence for event in await bench.stored()] == list(range(1, 1001))


async def test_a_server_that_is_further_in_a_spooled_batch_gets_the_rest_of_it(tmp_path: Path) -> None:
    async with publishing() as bench:
        publisher = spooling(bench, tmp_path)
        printed = await print_while_away(bench, publisher, 20)
        await until(lambda: bool(bench.network.calls))
        stored = [Event(sequence=1, timestamp=1, data=Gap(first_sequence=1, last_sequence=507, reason="x"))]
        await bench.services.events.publish_events(bench.attempt.task_token, stored)
        bench.network.open.set()
        remaining = await publisher.finish()
        assert bench.network.calls[1][0].sequence == 508
        assert isinstance(bench.network.calls[1][0].data, OutputBatch)
        await bench.services.events.publish_events(bench.attempt.task_token, remaining)
        assert printed.endswith(await bench.stored_output())
        assert len(await bench.stored_output()) == 6000 * (1000 - 507)


async def test_a_damaged_spool_is_a_gap_and_the_job_can_end(tmp_path: Path) -> None:
    async with publishing() as bench:
        publisher = spooling(bench, tmp_path)
        await print_while_away(bench, publisher, 20)
        file = single_file(tmp_path)
        file.write_bytes(b"\0" * file.stat().st_size)
        bench.network.open.set()
        remaining = await publisher.finish([ProcessEnd(pid=1, exit_code=0, run_duration_ms=5)])
        await bench.services.events.publish_events(bench.attempt.task_token, remaining)
        stored = await bench.stored()
        assert stored[-1].sequence == 1001
        lost = sum(
            event.last_sequence - event.sequence + 1 for event in stored if isinstance(event.data, Gap)
        )
        assert 500 < lost < 1000
        assert len(await bench.stored_output()) == 6000 * (1000 - lost)


async def test_an_abandoned_attempt_leaves_nothing_on_disk(tmp_path: Path) -> None:
    async with publishing() as bench:
        publisher = spooling(bench, tmp_path)
        await print_while_away(bench, publisher, 5)
        assert single_file(tmp_path).stat().st_size > 0
        await publisher.abandon()
        assert list(tmp_path.iterdir()) == []


async def test_a_lost_attempt_leaves_nothing_on_disk(tmp_path: Path) -> None:
    async with publishing() as bench:
        publisher = spooling(bench, tmp_path)
        await print_while_away(bench, publisher, 5)
        bench.clock.advance(301)
        await bench.services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=0))
        bench.network.open.set()
        with pytest.raises(VisibilityLost):
            await publisher.finish()
        await publisher.abandon()
        assert list(tmp_path.iterdir()) == []


class HungFolder(SpoolFolder):
    """A folder on a disk that does not answer until it is let."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.answers = threading.Event()

    def create(self, job_id: str, attempt: int) -> int:
        self.answers.wait()
        return super().create(job_id, attempt)


async def test_a_disk_that_hangs_holds_up_its_producer_and_nothing_else(tmp_path: Path) -> None:
    async with publishing() as bench:
        bench.network.open.clear()
        folder, job = HungFolder(tmp_path), bench.attempt.job
        spool = in_background(Spool(folder, job.job_id, job.attempt))
        publisher = bench.new_publisher(waiting_bytes=MEMORY, spool=spool)
        pieces, room = 0, None
        while room is None or room.done():
            pieces += 1
            assert pieces < 100
            pause = publisher.add_output(PIECE, OUT)
            room = asyncio.ensure_future(pause) if pause else None
            for _ in range(3):  # the loop turns, and time passes
                await asyncio.sleep(0)
                bench.clock.advance(1)
                await asyncio.sleep(0)
        # Memory, the block that the disk does not take, and the one that gathers behind it.
        assert pieces * len(b"".join(PIECE)) < MEMORY + 3 * 2 * len(b"".join(PIECE))
        assert list(tmp_path.iterdir()) == []

        folder.answers.set()
        async with asyncio.timeout(30):
            await room
        bench.network.open.set()
        remaining = await publisher.finish()
        await bench.services.events.publish_events(bench.attempt.task_token, remaining)
        assert await bench.stored_output() == b"".join(PIECE) * pieces


async def test_an_attempt_is_abandoned_whatever_the_disk_does(tmp_path: Path) -> None:
    async with publishing() as bench:
        bench.network.open.clear()
        folder, job = HungFolder(tmp_path), bench.attempt.job
        spool = in_background(Spool(folder, job.job_id, job.attempt), close_seconds=0.01)
        publisher = bench.new_publisher(waiting_bytes=MEMORY, spool=spool)
        for _ in range(4):
            room = publisher.add_output(PIECE, OUT)
            if isinstance(room, Coroutine):
                room.close()
            publisher._waiting.spill()
        assert publisher._waiting._write
        with capture_logs() as logged:
            await publisher.abandon()
        assert [entry["event"] for entry in logged] == ["spool.hangs"]
        folder.answers.set()  # what it does then leaves nothing either
        await publisher.abandon()
        await until(lambda: spool._disk._calls.empty() and not list(tmp_path.iterdir()))


async def test_an_error_that_nobody_thought_of_is_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with publishing() as bench:
        publisher = spooling(bench, tmp_path)
        monkeypatch.setattr(Spool, "write", lambda *_: 1 / 0)
        bench.network.open.clear()
        while await let_in(bench, publisher.add_output(PIECE, OUT)):
            pass
        monkeypatch.undo()
        assert await let_in(bench, publisher._until_room())
        assert single_file(tmp_path).stat().st_size > 0
