"""Compressed batches: smaller, exact, and refused when they lie."""

from __future__ import annotations

import os
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from airunner.codec.events import admit_event, decode_event, event_to_packed_pb, event_to_pb
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.codec.packing import unpack_payload
from airunner.domain.errors import InvalidArgument
from airunner.domain.event import Event, Output, OutputBatch, StreamType

NOON = 1_700_000_000_000
BOMB_BYTES = 50_000_000
LINES = tuple(Output(b"compiling module %d of the project\n" % n) for n in range(50))


def batch_of(outputs: tuple[Output, ...]) -> Event:
    stamps = tuple(range(NOON, NOON + len(outputs)))
    data = OutputBatch(outputs=outputs, start_sequence=1, end_sequence=len(outputs), timestamps=stamps)
    return Event(sequence=1, timestamp=NOON, data=data, attempt=1)


@given(
    st.lists(st.builds(Output, st.binary(max_size=400), st.sampled_from(StreamType)), min_size=1, max_size=50)
)
def test_a_packed_batch_is_the_same_batch(outputs: list[Output]) -> None:
    event = batch_of(tuple(outputs))
    packed, plain = event_to_packed_pb(event), event_to_pb(event)
    assert packed.ByteSize() <= plain.ByteSize() + 8
    stored = admit_event(packed, NOON)
    assert decode_event(stored).data == event.data
    assert decode_event(stored).last_sequence == stored.last_sequence == len(outputs)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 300_000])
@pytest.mark.parametrize("stream", list(StreamType))
def test_outputs_are_encoded_as_the_library_does_it(size: int, stream: StreamType) -> None:
    outputs = (Output(b"\0" * size, stream), Output(b"\n" * size, StreamType.STDOUT))
    expected = pb.OutputBatchEvent(
        outputs=[pb.OutputItem(output=each.output, stream=int(each.stream)) for each in outputs],  # type: ignore[arg-type]  # the number of a member
        start_sequence=1,
        end_sequence=2,
        timestamps=[NOON, NOON + 1],
    )
    assert event_to_pb(batch_of(outputs)).output_batch == expected


def test_text_gets_much_smaller() -> None:
    event = batch_of(LINES)
    assert event_to_packed_pb(event).ByteSize() < event_to_pb(event).ByteSize() / 2


def test_noise_and_short_batches_stay_as_they_are() -> None:
    for outputs in ((Output(os.urandom(2000)),), LINES[:2]):
        assert not event_to_packed_pb(batch_of(outputs)).output_batch.encoding


def test_a_reader_that_cannot_unpack_gets_the_plain_batch() -> None:
    event = batch_of(LINES)
    stored = admit_event(event_to_packed_pb(event), NOON)
    plain = pb.JobEvent.FromString(unpack_payload(stored.payload))
    assert len(plain.output_batch.outputs) == 50
    assert not plain.output_batch.packed
    assert unpack_payload(b"\xff\xff") == b"\xff\xff"


@pytest.mark.parametrize("fault", ["size", "bomb", "garbage", "encoding", "both", "count", "huge"])
def test_a_packed_batch_that_lies_about_itself_is_refused(fault: str) -> None:
    message = event_to_packed_pb(batch_of(LINES))
    batch = message.output_batch
    match fault:
        case "size":
            batch.unpacked_bytes += 1
        case "bomb":
            batch.packed = zstandard.ZstdCompressor().compress(bytes(BOMB_BYTES))
        case "garbage":
            batch.packed = b"not zstd at all"
        case "encoding":
            batch.encoding = 7  # type: ignore[assignment]  # unknown
        case "both":
            batch.outputs.add(output=b"x")
        case "count":
            batch.end_sequence += 1
        case "huge":
            batch.unpacked_bytes = 2**40
    with pytest.raises(InvalidArgument):
        admit_event(message, NOON)


@pytest.mark.parametrize("tells_size", [True, False])
def test_a_bomb_is_refused_before_it_takes_memory(*, tells_size: bool) -> None:
    message = event_to_packed_pb(batch_of(LINES))
    compressor = zstandard.ZstdCompressor(write_content_size=tells_size)
    message.output_batch.packed = compressor.compress(bytes(BOMB_BYTES))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidArgument):
            admit_event(message, NOON)
        assert tracemalloc.get_traced_memory()[1] < BOMB_BYTES / 10
    finally:
        tracemalloc.stop()
