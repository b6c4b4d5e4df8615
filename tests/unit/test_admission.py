"""What is refused when it is published, so that everything stored can be read."""

from __future__ import annotations

import pytest

from airunner.codec.events import admit_event, admit_events, encode_event, encode_events
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.errors import InvalidArgument, NonMonotonicSequence
from airunner.domain.event import Event, Output, OutputBatch
from airunner.testing.factories import make_batch, make_line

NOON = 1_700_000_000_000


@pytest.mark.parametrize(
    "message",
    [
        pb.JobEvent(sequence=1),
        pb.JobEvent(sequence=0, process_error={"error_message": "x"}),
        pb.JobEvent(sequence=1, event_type=pb.EVENT_TYPE_GAP, process_error={"error_message": "x"}),
        pb.JobEvent(sequence=1, output_data={"output": b"x", "stream": 7}),
        pb.JobEvent(sequence=1, process_start={"pid": 1, "started_at": {"seconds": 1, "nanos": -5}}),
        pb.JobEvent(sequence=1, process_error={}, timestamp={"seconds": -1}),
        pb.JobEvent(sequence=1, gap={"first_sequence": 2, "last_sequence": 3}),
        pb.JobEvent(sequence=1, output_batch={"start_sequence": 1, "end_sequence": 1}),
        pb.JobEvent(
            sequence=1,
            output_batch={"start_sequence": 1, "end_sequence": 1, "outputs": [{"output": b"x", "stream": 9}]},
        ),
    ],
)
def test_an_event_that_could_not_be_read_is_refused(message: pb.JobEvent) -> None:
    with pytest.raises(InvalidArgument):
        admit_event(message, NOON)


def test_a_batch_without_timestamps_covers_the_time_it_will_be_given() -> None:
    batch = OutputBatch(outputs=(Output(b"x"),) * 3, start_sequence=1, end_sequence=3)
    encoded = encode_event(Event(sequence=1, timestamp=NOON, data=batch))
    assert (encoded.first_timestamp, encoded.last_timestamp) == (NOON, NOON + 100)


@pytest.mark.parametrize(
    "events",
    [
        [make_line(1, at=NOON), make_line(2, at=NOON - 1)],
        [make_batch(1, 2, timestamps=[NOON, NOON + 9]), make_line(3, at=NOON + 8)],
        [make_line(1, at=NOON), make_batch(2, 3, at=NOON - 1)],
        [make_line(1, at=NOON), make_line(2, at=NOON + 5), make_line(3, at=NOON + 4)],
    ],
)
def test_timestamps_that_run_backwards_within_one_publish_are_refused(events: list[Event]) -> None:
    with pytest.raises(InvalidArgument, match="backwards"):
        encode_events(events)


def test_a_sequence_that_falls_is_told_before_a_time_that_does() -> None:
    with pytest.raises(NonMonotonicSequence):
        encode_events([make_line(2, at=NOON), make_line(1, at=NOON - 1)])


def test_simulated_times_bind_nobody() -> None:
    events = [make_batch(1, 9, at=NOON, timestamps=()), make_line(10, at=NOON + 1)]
    assert [event.first_timestamp for event in encode_events(events)] == [NOON, NOON + 1]


def test_an_event_without_a_time_is_not_before_the_one_it_follows() -> None:
    messages = [
        pb.JobEvent(sequence=1, process_error={}, timestamp={"seconds": NOON // 1000 + 60}),
        pb.JobEvent(sequence=2, process_error={}),
    ]
    admitted = admit_events(messages, NOON)
    assert [event.first_timestamp for event in admitted] == [NOON + 60_000, NOON + 60_000]
    assert admit_events([pb.JobEvent(sequence=1, process_error={})], NOON)[0].first_timestamp == NOON
