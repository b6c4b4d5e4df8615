"""What is refused when it is published, so that everything stored can be read."""

from __future__ import annotations

import pytest

from airunner.codec.events import admit_event, encode_event
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.errors import InvalidArgument
from airunner.domain.event import Event, Output, OutputBatch

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
