"""The Publisher on the real services in memory; only faults of the network are made up."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from airunner import telemetry
from airunner.domain.errors import (
    DeadlineExceeded,
    InvalidArgument,
    InvalidTaskToken,
    MessageTooLarge,
    Overloaded,
    ResourceExhausted,
    Unavailable,
    VisibilityLost,
)
from airunner.domain.event import Event, Gap, Output, OutputBatch, ProcessEnd, ProcessStart, StreamType
from airunner.domain.requests import DequeueRequest, StreamRequest
from airunner.testing.conditions import until
from airunner.worker.publishing.publisher import CALL_BYTES
from tests.support.consumers import turns
from tests.support.publishers import lines, publishing

OUT = StreamType.STDOUT


async def test_a_tiny_job_needs_no_call_of_its_own() -> None:
    async with publishing() as bench:
        bench.publisher.add(ProcessStart(pid=1, started_at=bench.clock.now()))
        assert bench.publisher.add_output([b"hello\n"], OUT) is None
        remaining = await bench.publisher.finish([ProcessEnd(pid=1, exit_code=0, run_duration_ms=5)])
        assert bench.network.calls == []
        assert [type(event.data) for event in remaining] == [ProcessStart, OutputBatch, ProcessEnd]
        end = remaining[-1].data
        assert isinstance(end, ProcessEnd)
        assert (end.event_count, end.output_sha256) == (2, hashlib.sha256(b"hello\n").digest())


async def test_the_start_is_published_within_100_ms() -> None:
    async with publishing() as bench:
        bench.publisher.add(ProcessStart(pid=1, started_at=bench.clock.now()))
        bench.clock.advance(0.099)
        await asyncio.sleep(0)
        assert bench.network.calls == []
        bench.clock.advance(0.001)
        await until(lambda: bool(bench.network.calls))
        assert await bench.stored()


async def test_output_goes_when_its_interval_is_over_or_a_batch_is_full() -> None:
    async with publishing() as bench:
        bench.publisher.add_output(lines(60), OUT)
        await until(lambda: len(bench.network.calls) == 1)
        assert [event.last_sequence for event in bench.network.calls[0]] == [50]
        bench.clock.advance(5)
        await until(lambda: len(bench.network.calls) == 2)
        assert await bench.stored_output() == b"".join(lines(60))


async def test_a_clock_that_steps_back_breaks_no_publish_and_delays_none() -> None:
    async with publishing() as bench:
        written = lines(3)
        bench.publisher.add(ProcessStart(pid=1, started_at=bench.clock.now()))
        for line in written:
            bench.publisher.add_output([line], OUT)
            bench.clock.step(-3600)
        bench.clock.advance(10)
        await until(lambda: bool(bench.network.calls))
        bench.publisher.add_output(written, OUT)
        bench.clock.step(-3600)
        remaining = await bench.publisher.finish([ProcessEnd(pid=1, exit_code=0, run_duration_ms=5)])
        await bench.network.publish_events(bench.attempt.task_token, remaining)
        assert await bench.stored_output() == b"".join(written) * 2
        for call in [*bench.network.calls, remaining]:
            times = [at for event in call for at in event_times(event)]
            assert times == sorted(times)


def event_times(event: Event) -> list[int]:
    return list(event.data.timestamps) if isinstance(event.data, OutputBatch) else [event.timestamp]


async def test_what_gathers_during_a_call_goes_in_one_call() -> None:
    async with publishing() as bench:
        bench.network.open.clear()
        bench.publisher.add_output(lines(50), OUT)
        await until(lambda: bool(bench.network.calls))
        for _ in range(10):
            bench.publisher.add_output(lines(50), OUT)
        bench.network.open.set()
        await until(lambda: len(bench.network.calls) == 2)
        assert [len(call) for call in bench.network.calls] == [1, 10]


async def test_no_call_is_too_large() -> None:
    async with publishing() as bench:
        bench.network.open.clear()
        written = [b"x" * 60_000 + b"\n"] * 60
        bench.publisher.add_output(written, OUT)
        bench.network.open.set()
        remaining = await bench.publisher.finish()
        assert len(bench.network.calls) >= 3
        for call in [*bench.network.calls, remaining]:
            outputs = [
                out for event in call if isinstance(event.data, OutputBatch) for out in event.data.outputs
            ]
            assert sum(len(output.output) for output in outputs) <= CALL_BYTES
        await bench.network.publish_events(bench.attempt.task_token, remaining)
        assert await bench.stored_output() == b"".join(written)


@pytest.mark.parametrize("error", [Unavailable(), DeadlineExceeded(), ResourceExhausted()], ids=repr)
async def test_it_tries_again_with_growing_pauses_until_the_server_takes_it(error: Exception) -> None:
    async with publishing() as bench:
        bench.network.lost_requests.extend([error] * 3)
        bench.publisher.add_output(lines(50), OUT)
        for tries, pause in enumerate((1, 2, 4), start=1):
            await until(lambda: bench.clock.waiting >= 2)  # the pause, beside the upkeep
            bench.clock.advance(pause - 0.001)
            await turns()
            assert len(bench.network.calls) == tries
            bench.clock.advance(0.001)
        await until(lambda: len(bench.network.calls) == 4)
        assert await bench.stored_output() == b"".join(lines(50))


async def test_it_waits_as_long_as_a_busy_server_wants() -> None:
    async with publishing() as bench:
        bench.network.lost_requests.append(Overloaded(retry_after_seconds=20))
        bench.publisher.add_output(lines(50), OUT)
        await until(lambda: bench.clock.waiting >= 2)
        bench.clock.advance(19.9)
        await asyncio.sleep(0)
        assert len(bench.network.calls) == 1
        bench.clock.advance(0.1)
        await until(lambda: len(bench.network.calls) == 2)


async def test_a_lost_answer_repeats_nothing() -> None:
    async with publishing() as bench:
        bench.network.lost_answers.append(DeadlineExceeded())
        bench.publisher.add_output(lines(50), OUT)
        await until(lambda: bench.clock.waiting >= 2)
        bench.publisher.add_output(lines(50), OUT)
        bench.clock.advance(1)
        await until(lambda: len(bench.network.calls) == 2)
        assert await bench.publisher.finish() == []
        assert await bench.stored_output() == b"".join(lines(50)) * 2


async def test_it_resumes_where_the_server_says_be_it_in_the_middle_of_a_batch() -> None:
    async with publishing() as bench:
        bench.network.open.clear()
        bench.publisher.add_output([*lines(50), *lines(50)], OUT)
        await until(lambda: bool(bench.network.calls))
        stored = [Event(sequence=1 + n, timestamp=1, data=Output(lines(50)[n])) for n in range(7)]
        await bench.services.events.publish_events(bench.attempt.task_token, stored)
        bench.network.open.set()
        await until(lambda: len(bench.network.calls) == 2)
        assert await bench.publisher.finish() == []
        assert bench.network.calls[1][0].sequence == 8
        assert await bench.stored_output() == b"".join(lines(50)) * 2
        assert [event.sequence for event in await bench.stored()] == list(range(1, 101))


async def test_events_that_the_server_lost_become_a_gap() -> None:
    async with publishing() as bench:
        bench.publisher._batcher.add_output(
            lines(50), OUT, bench.clock.now()
        )  # as if acknowledged, and lost since
        bench.publisher.add_output(lines(50), OUT)
        await until(lambda: len(bench.network.calls) == 2)
        assert await bench.publisher.finish() == []
        stored = await bench.stored()
        assert isinstance(stored[0].data, Gap)
        assert (stored[0].data.first_sequence, stored[0].data.last_sequence) == (1, 50)
        assert await bench.stored_output() == b"".join(lines(50))


@pytest.mark.parametrize("error", [InvalidArgument("no"), MessageTooLarge("no")], ids=repr)
async def test_an_event_that_the_server_refuses_becomes_a_gap_and_takes_no_other_along(
    error: Exception,
) -> None:
    async with publishing() as bench:
        bench.network.open.clear()
        bench.publisher.add_output(lines(150), OUT)
        bench.network.lost_requests.extend([error, error])
        bench.network.open.set()
        await until(lambda: len(bench.network.calls) >= 4)
        assert await bench.publisher.finish() == []
        stored = await bench.stored()
        assert isinstance(stored[0].data, Gap)
        assert stored[0].data.last_sequence == 50
        assert await bench.stored_output() == b"".join(lines(150)[50:])
        # The one that is refused is found by sending each by itself; what follows it goes together again.
        assert [len(call) for call in bench.network.calls] == [3, 1, 1, 2]


async def test_a_refused_task_token_replaces_no_line() -> None:
    async with publishing() as bench:
        bench.network.open.clear()
        bench.publisher.add_output(lines(150), OUT)
        bench.network.lost_requests.extend([InvalidTaskToken()] * 4)
        bench.network.open.set()
        for pause in (1, 2, 4, 5):
            await until(lambda: bench.clock.waiting >= 2)  # the pause, beside the upkeep
            bench.clock.advance(pause)
        await until(lambda: bench.publisher.idle)
        assert await bench.publisher.finish() == []
        assert await bench.stored_output() == b"".join(lines(150))
        assert [event.sequence for event in await bench.stored()] == list(range(1, 151))


async def test_a_task_token_that_is_refused_for_a_minute_ends_the_attempt_and_what_it_had_to_say() -> None:
    async with publishing() as bench:
        bench.network.lost_requests.extend([InvalidTaskToken()] * 10_000)
        dropped = telemetry.events_dropped.read()[()]
        began = bench.clock.now()
        bench.publisher.add_output(lines(70), OUT)
        while not bench.publisher.lost.done():
            await until(lambda: bench.publisher.lost.done() or bench.clock.waiting >= 2)
            bench.clock.advance(2)
        assert 60_000 <= bench.clock.now() - began <= 75_000
        with pytest.raises(VisibilityLost):
            await bench.publisher.finish()
        await bench.publisher.abandon()
        await bench.publisher.abandon()
        assert telemetry.events_dropped.read()[()] == dropped + 70
        assert await bench.stored() == []


async def test_too_much_waiting_pushes_back_on_the_producer() -> None:
    async with publishing() as bench:
        publisher = bench.new_publisher(waiting_bytes=10_000)
        bench.network.open.clear()
        assert publisher.add_output(lines(50, 100), OUT) is None
        pushing_back = publisher.add_output(lines(50, 100), OUT)
        assert pushing_back is not None
        waiting = asyncio.ensure_future(pushing_back)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done()
        bench.network.open.set()
        await until(waiting.done)
        waiting.result()


async def test_a_superseded_attempt_is_lost() -> None:
    async with publishing() as bench:
        publisher = bench.new_publisher(waiting_bytes=1)
        bench.clock.advance(301)
        await bench.services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=0))
        pushing_back = publisher.add_output(lines(50), OUT)
        assert pushing_back is not None
        with pytest.raises(VisibilityLost):
            await pushing_back
        with pytest.raises(VisibilityLost):
            publisher.add_output(lines(1), OUT)
        with pytest.raises(VisibilityLost):
            await publisher.finish()
        with pytest.raises(VisibilityLost):
            publisher.lost.result()


async def test_a_watched_job_is_published_at_once() -> None:
    async with publishing() as bench:
        bench.publisher.add_output(lines(1), OUT)
        bench.clock.advance(0.5)
        await asyncio.sleep(0)
        assert bench.network.calls == []
        bench.attempt.set_watched(True)
        await until(lambda: len(bench.network.calls) == 1)
        assert await bench.stored_output() == lines(1)[0]


async def test_what_waits_already_waits_no_longer_than_a_watcher_should() -> None:
    async with publishing() as bench:
        bench.publisher.add_output(lines(51), OUT)
        await until(lambda: len(bench.network.calls) == 1)
        # A line is left behind, and a batch has just gone: the next goes 100 ms after it.
        bench.attempt.set_watched(True)
        bench.clock.advance(0.099)
        await turns()
        assert len(bench.network.calls) == 1
        bench.clock.advance(0.001)
        await until(lambda: len(bench.network.calls) == 2)
        assert await bench.stored_output() == b"".join(lines(51))


async def test_the_answer_tells_who_watches_and_who_cancelled() -> None:
    async with publishing() as bench:
        stream = bench.services.events.stream_events(StreamRequest(job_id=bench.attempt.job.job_id))
        watching = asyncio.ensure_future(anext(stream))
        await until(lambda: bench.services.watchers.streams > 0)
        await bench.services.jobs.cancel_job(bench.attempt.job.job_id)
        bench.publisher.add_output(lines(50), OUT)
        await until(lambda: bench.attempt.watched)
        await until(bench.cancelled.is_set)
        await watching
        await stream.aclose()
        bench.clock.advance(0.2)
        bench.publisher.add_output(lines(1), OUT)
        await until(lambda: len(bench.network.calls) == 2)
