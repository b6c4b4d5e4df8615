"""Whatever is added, in whatever order and time: nothing is lost, repeated or out of order."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from airunner.codec.events import decode_event, encode_event
from airunner.domain.batching import Batcher, Flush, unpack
from airunner.domain.event import EncodedEvent, Event, Output, ProcessEnd, ProcessStart, Progress, StreamType
from airunner.domain.execution import BatchingConfig
from airunner.reading.event_buffer import EventBuffer

T0 = 1_700_000_000_000

configs = st.builds(
    BatchingConfig,
    flush_interval_seconds=st.integers(1, 5),
    max_batch_size=st.sampled_from([1, 2, 3, 50]),
    max_batch_bytes=st.sampled_from([1024, 4096, 256 * 1024]),
    adaptive=st.booleans(),
)
some_lines = st.lists(st.binary(max_size=20) | st.binary(min_size=900, max_size=3000), max_size=6)
steps = st.lists(
    st.tuples(
        st.integers(-500, 4_000),
        st.one_of(
            st.tuples(some_lines, st.sampled_from(StreamType)),
            st.sampled_from(["tick", "watched", "progress", "start"]),
        ),
    ),
    max_size=40,
)
Step = tuple[int, tuple[list[bytes], StreamType] | str]


def drive(batcher: Batcher, plan: list[Step]) -> list[Flush]:
    flushes: list[Flush] = []
    now = T0
    for passed, step in plan:
        now += passed
        match step:
            case "tick":
                flushes += batcher.tick(now)
            case "watched":
                batcher.watched = not batcher.watched
            case "progress":
                flushes += batcher.add(Progress(done=1, total=2), now)
            case "start":
                flushes += batcher.add(ProcessStart(pid=1, started_at=now), now)
            case (lines, stream):
                flushes += batcher.add_output(lines, stream, now)
    flushes += batcher.add(ProcessEnd(pid=1, exit_code=0, run_duration_ms=1), now)
    return flushes


@given(config=configs, plan=steps)
def test_the_output_joined_is_what_was_added(config: BatchingConfig, plan: list[Step]) -> None:
    flushes = drive(Batcher(config), plan)
    for stream in StreamType:
        added = [
            line for _, step in plan if isinstance(step, tuple) and step[1] is stream for line in step[0]
        ]
        found = [
            single.data.output
            for event in events_of(flushes)
            for single in unpack(event)
            if isinstance(single.data, Output) and single.data.stream is stream
        ]
        assert b"".join(found) == b"".join(added)


@given(config=configs, plan=steps)
def test_sequences_are_contiguous_and_times_do_not_run_backwards(
    config: BatchingConfig, plan: list[Step]
) -> None:
    events = events_of(drive(Batcher(config), plan))
    singles = [single for event in events for single in unpack(event)]
    assert [single.sequence for single in singles] == list(range(1, len(singles) + 1))
    assert all(before.timestamp <= after.timestamp for before, after in itertools.pairwise(singles))
    end = singles[-1].data
    assert isinstance(end, ProcessEnd)
    assert end.event_count == len(singles) - 1


@given(config=configs, plan=steps)
def test_every_batch_is_one_that_the_server_takes(config: BatchingConfig, plan: list[Step]) -> None:
    for event in events_of(drive(Batcher(config), plan)):
        encoded = encode_event(event)
        assert isinstance(encoded, EncodedEvent)
        assert decode_event(encoded) == event
        if event.last_sequence > event.sequence:
            assert event.last_sequence - event.sequence < config.max_batch_size


@given(config=configs, plan=steps, from_sequence=st.integers(1, 60))
def test_a_reader_gets_every_event_from_where_it_begins(
    config: BatchingConfig, plan: list[Step], from_sequence: int
) -> None:
    batcher = Batcher(config)
    buffer = EventBuffer(from_sequence)
    for event in events_of(drive(batcher, plan)):
        buffer.add(event)
    read = [event.sequence for event in iter(buffer.next, None)]
    assert read == list(range(from_sequence, batcher.next_sequence))


def events_of(flushes: list[Flush]) -> list[Event]:
    return [event for flush in flushes for event in flush.events]
