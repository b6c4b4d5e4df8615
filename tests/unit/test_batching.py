from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence

import pytest

from airunner.domain.batching import Batcher, Flush, FlushReason
from airunner.domain.event import (
    Event,
    Output,
    OutputBatch,
    ProcessEnd,
    ProcessError,
    ProcessStart,
    Progress,
    StreamType,
)
from airunner.domain.execution import BatchingConfig

T0 = 1_700_000_000_000
OUT = StreamType.STDOUT
START = ProcessStart(pid=1, started_at=T0)
END = ProcessEnd(pid=1, exit_code=0, run_duration_ms=5)


def lines(count: int, size: int = 8) -> list[bytes]:
    return [b"%0*d" % (size, number) for number in range(count)]


def outputs(flushes: Sequence[Flush]) -> list[bytes]:
    found: list[bytes] = []
    for event in itertools.chain.from_iterable(flush.events for flush in flushes):
        if isinstance(event.data, OutputBatch):
            found += [output.output for output in event.data.outputs]
        elif isinstance(event.data, Output):
            found.append(event.data.output)
    return found


def ranges(flushes: Sequence[Flush]) -> list[tuple[int, int]]:
    return [(event.sequence, event.last_sequence) for flush in flushes for event in flush.events]


def batch_of(event: Event) -> OutputBatch:
    assert isinstance(event.data, OutputBatch)
    return event.data


def test_nothing_goes_before_its_time() -> None:
    batcher = Batcher(BatchingConfig())
    assert batcher.add_output(lines(10), OUT, T0) == []
    assert batcher.due_at == T0 + 2_000
    assert batcher.tick(T0 + 1_999) == []
    assert batcher.buffered == 10


def test_flush_by_time() -> None:
    batcher = Batcher(BatchingConfig())
    batcher.add_output(lines(10), OUT, T0)
    batcher.add_output(lines(10), OUT, T0 + 1_500)
    (flush,) = batcher.tick(T0 + 2_000)
    assert flush.reason is FlushReason.TIME
    assert ranges([flush]) == [(1, 20)]
    assert (batcher.due_at, batcher.buffered, batcher.next_sequence) == (None, 0, 21)


def test_flush_by_size() -> None:
    batcher = Batcher(BatchingConfig())
    flushes = batcher.add_output(lines(120), OUT, T0)
    assert [flush.reason for flush in flushes] == [FlushReason.SIZE, FlushReason.SIZE]
    assert ranges(flushes) == [(1, 50), (51, 100)]
    assert batcher.buffered == 20


def test_flush_by_bytes() -> None:
    batcher = Batcher(BatchingConfig(max_batch_bytes=1024))
    flushes = batcher.add_output(lines(5, size=300), OUT, T0)
    assert [flush.reason for flush in flushes] == [FlushReason.BYTES]
    assert ranges(flushes) == [(1, 3)]
    assert batcher.buffered == 2


@pytest.mark.parametrize("critical", [END, ProcessError(error_message="boom")])
def test_a_critical_event_goes_at_once_and_takes_along_what_is_before_it(
    critical: ProcessEnd | ProcessError,
) -> None:
    batcher = Batcher(BatchingConfig())
    batcher.add(START, T0)
    batcher.add_output(lines(3), OUT, T0)
    (flush,) = batcher.add(critical, T0 + 10)
    assert flush.reason is FlushReason.CRITICAL
    assert ranges([flush]) == [(1, 1), (2, 4), (5, 5)]
    assert isinstance(flush.events[-1].data, type(critical))
    assert batcher.buffered == 0


def test_flush_by_close() -> None:
    batcher = Batcher(BatchingConfig())
    batcher.add_output(lines(3), OUT, T0)
    (flush,) = batcher.close(T0)
    assert flush.reason is FlushReason.CLOSE
    assert ranges([flush]) == [(1, 3)]
    assert batcher.close(T0) == []


def test_the_start_goes_within_100_ms() -> None:
    batcher = Batcher(BatchingConfig())
    assert batcher.add(START, T0) == []
    assert batcher.due_at == T0 + 100
    batcher.add_output(lines(2), OUT, T0 + 50)
    (flush,) = batcher.tick(T0 + 100)
    assert ranges([flush]) == [(1, 1), (2, 3)]


def test_progress_keeps_its_place_between_outputs() -> None:
    batcher = Batcher(BatchingConfig())
    batcher.add_output(lines(2), OUT, T0)
    batcher.add(Progress(done=1, total=2), T0)
    batcher.add_output(lines(2), OUT, T0)
    (flush,) = batcher.close(T0)
    assert ranges([flush]) == [(1, 2), (3, 3), (4, 5)]


def test_the_end_proves_what_came_before_it() -> None:
    batcher = Batcher(BatchingConfig())
    batcher.add(START, T0)
    batcher.add_output([b"one\n", b"two\n"], OUT, T0)
    (flush,) = batcher.add(END, T0)
    end = flush.events[-1].data
    assert isinstance(end, ProcessEnd)
    assert end.event_count == 3
    assert end.output_sha256 == hashlib.sha256(b"one\ntwo\n").digest() == batcher.output_sha256


def test_an_oversized_line_is_split_not_dropped() -> None:
    batcher = Batcher(BatchingConfig(max_batch_bytes=1024))
    line = bytes(range(256)) * 12
    flushes = [*batcher.add_output([b"before\n", line, b"after\n"], OUT, T0), *batcher.close(T0)]
    assert b"".join(outputs(flushes)) == b"before\n" + line + b"after\n"
    assert all(len(piece) <= 1000 for piece in outputs(flushes))
    # Each piece has a sequence of its own.
    assert batcher.next_sequence == 1 + 2 + -(-len(line) // 1000)


def test_timestamps_never_run_backwards() -> None:
    batcher = Batcher(BatchingConfig())
    flushes = [
        *batcher.add(START, T0),
        *batcher.add_output(lines(1), OUT, T0 - 50),
        *batcher.add_output(lines(1), OUT, T0 + 7),
        *batcher.add_output(lines(1), OUT, T0 + 3),
        *batcher.add(END, T0 - 60_000),
    ]
    (flush,) = flushes
    assert [event.timestamp for event in flush.events] == [T0, T0, T0 + 7]
    assert batch_of(flush.events[1]).timestamps == (T0, T0 + 7, T0 + 7)


@pytest.mark.parametrize("watched", [False, True])
def test_a_clock_that_is_set_back_keeps_no_output_waiting(watched: bool) -> None:
    batcher = Batcher(BatchingConfig())
    batcher.watched = watched
    for later_ms in (0, 10):
        batcher.add_output(lines(1), OUT, T0 + 3_600_000 + later_ms)
    batcher.add_output(lines(1), OUT, T0)
    assert batcher.due_at is None or batcher.due_at <= T0 + 2_000
    batcher.tick(T0 + 2_000)
    assert batcher.buffered == 0


def test_what_waits_when_the_clock_is_set_back_goes_with_the_next_tick() -> None:
    batcher = Batcher(BatchingConfig())
    assert batcher.add_output(lines(1), OUT, T0 + 3_600_000) == []
    assert outputs(batcher.tick(T0 + 2_000)) == lines(1)


def test_a_watched_job_sends_its_first_line_at_once_and_then_every_100_ms() -> None:
    batcher = Batcher(BatchingConfig())
    batcher.watched = True
    (first,) = batcher.add_output(lines(1), OUT, T0)
    assert first.reason is FlushReason.TIME
    assert batcher.add_output(lines(1), OUT, T0 + 30) == []
    assert batcher.due_at == T0 + 100
    (second,) = batcher.tick(T0 + 100)
    assert ranges([second]) == [(2, 2)]
    # After a silence the first line goes at once again.
    (third,) = batcher.add_output(lines(1), OUT, T0 + 5_000)
    assert ranges([third]) == [(3, 3)]


def test_an_unwatched_job_that_prints_little_waits_up_to_5_seconds() -> None:
    batcher = Batcher(BatchingConfig())
    batcher.add_output(lines(1), OUT, T0)
    batcher.tick(T0 + 2_000)
    batcher.add_output(lines(1), OUT, T0 + 2_500)
    assert batcher.due_at == T0 + 7_500


def test_an_unwatched_job_that_prints_much_keeps_its_interval() -> None:
    batcher = Batcher(BatchingConfig())
    batcher.add_output(lines(30), OUT, T0)
    batcher.tick(T0 + 2_000)
    batcher.add_output(lines(1), OUT, T0 + 2_000)
    assert batcher.due_at == T0 + 4_000


def test_a_stretched_interval_comes_back_with_more_output() -> None:
    batcher = Batcher(BatchingConfig())
    batcher.add_output(lines(1), OUT, T0)
    batcher.add_output(lines(1), OUT, T0 + 60_000)
    for tenth in range(20):
        batcher.add_output(lines(4), OUT, T0 + 60_000 + 100 * tenth)
    batcher.close(T0 + 62_000)
    batcher.add_output(lines(4), OUT, T0 + 62_000)
    assert batcher.due_at == T0 + 64_000


def test_without_adapting_the_interval_is_fixed() -> None:
    batcher = Batcher(BatchingConfig(adaptive=False, flush_interval_seconds=3))
    batcher.watched = True
    assert batcher.add_output(lines(1), OUT, T0) == []
    assert batcher.due_at == T0 + 3_000
    batcher.tick(T0 + 3_000)
    batcher.add_output(lines(1), OUT, T0 + 30_000)
    assert batcher.due_at == T0 + 33_000


def test_a_batch_size_of_one_turns_batching_off() -> None:
    batcher = Batcher(BatchingConfig(max_batch_size=1))
    flushes = batcher.add_output(lines(3), OUT, T0)
    assert [flush.reason for flush in flushes] == [FlushReason.SIZE] * 3
    assert [type(flush.events[0].data) for flush in flushes] == [Output] * 3
    assert ranges(flushes) == [(1, 1), (2, 2), (3, 3)]


def test_a_batch_remembers_stream_and_time_of_each_line() -> None:
    batcher = Batcher(BatchingConfig(playback_interval_millis=20))
    batcher.add_output([b"out\n"], StreamType.STDOUT, T0)
    batcher.add_output([b"err\n"], StreamType.STDERR, T0 + 5)
    (flush,) = batcher.close(T0 + 9)
    batch = batch_of(flush.events[0])
    assert batch.outputs == (Output(b"out\n"), Output(b"err\n", StreamType.STDERR))
    assert batch.timestamps == (T0, T0 + 5)
    assert batch.playback_interval_millis == 20


def test_ten_thousand_lines_take_two_hundred_batches() -> None:
    batcher = Batcher(BatchingConfig())
    flushes = []
    for number in range(10_000):
        flushes += batcher.add_output([b"line %d\n" % number], OUT, T0 + number // 10)
    flushes += batcher.close(T0 + 1_001)
    assert len(ranges(flushes)) <= 201
