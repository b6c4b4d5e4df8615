"""Batches as they are stored: placed and dated while packed; unpacked, they are the events of `monitor`."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.client.stored_batch import StoredBatch
from airunner.client.stream_log import BatchLog, WatchedLog
from airunner.codec import packing
from airunner.codec.events import admit_event, encode_event, event_to_packed_pb
from airunner.codec.streams import batch_to_pb
from airunner.domain.event import BEGINNING, EncodedEvent, Event, EventType, Gap, OutputBatch, Position
from airunner.domain.requests import StreamRequest
from airunner.reading.event_buffer import EventBuffer
from airunner.testing.factories import NOON, make_batch, make_end, make_line, make_start

REQUEST = StreamRequest(job_id="a")
BROKEN = EncodedEvent(
    first_sequence=1,
    last_sequence=5,
    first_timestamp=NOON,
    last_timestamp=NOON,
    event_type=EventType.OUTPUT_BATCH,
    payload=b"\xff",
    attempt=1,
)


def stored(event: Event, attempt: int = 1) -> EncodedEvent:
    """Return an event as the server keeps what a worker of ours publishes: packed."""
    return admit_event(event_to_packed_pb(event), event.timestamp).of_attempt(attempt)


def read(
    events: list[EncodedEvent],
    request: StreamRequest = REQUEST,
    start: Position = BEGINNING,
    *,
    again: int = 1,
) -> list[StoredBatch]:
    """Return what is yielded if each message comes `again` times, as after a connection that broke."""
    log = BatchLog(request, start)
    taken = [log.take(batch_to_pb(event, packed=True)) for event in events for _ in range(again)]
    return [batch for batch in taken if batch]


@st.composite
def stored_logs(draw: st.DrawFn) -> list[EncodedEvent]:
    """Return the stored events of some attempts, whose workers' clocks may be set back between publishes."""
    found = []
    for attempt in range(1, draw(st.integers(1, 2)) + 1):
        sequence = 1
        for _ in range(draw(st.integers(0, 5))):
            event = draw(_events(sequence))
            found.append(stored(event, attempt))
            sequence = event.last_sequence + 1
    return found


@st.composite
def _events(draw: st.DrawFn, first: int) -> Event:
    at, last = NOON + draw(st.integers(-300, 300)), first + draw(st.integers(0, 4))
    match draw(st.sampled_from(["dated", "at once", "timeless", "single", "gap"])):
        case "single":
            return make_line(first, at=at)
        case "gap":
            return Event(first, at, Gap(first_sequence=first, last_sequence=last, reason="lost"))
        case "timeless":
            return make_batch(first, last, at=at, timestamps=())
        case "dated":
            return make_batch(first, last, at=at, timestamps=range(at, at + 40 * (last - first + 1), 40))
        case _:
            return make_batch(first, last, at=at)


@given(stored_logs(), st.integers(1, 2), st.integers(0, 8), st.sampled_from([0, NOON, NOON + 150]))
def test_the_events_of_batches_are_those_of_monitor_and_of_no_other_batch(
    events: list[EncodedEvent], again: int, after: int, since: int
) -> None:
    request, start = replace(REQUEST, from_timestamp=since), Position(1, after) if after else BEGINNING
    watched = WatchedLog(request, start)
    # A server begins with the batch that contains the position.
    events = [event for event in events if event.position > start]
    parts = [(event, watched.take(batch_to_pb(event, packed=True))) for event in events]
    wanted = [(event.position, single) for event, single in parts if single]
    batches = read(events, request, start, again=again)
    assert [Position.from_cursor(batch.cursor) for batch in batches] == [position for position, _ in wanted]
    for batch, (_, single) in zip(batches, wanted, strict=True):
        assert batch.events()[-len(single) :] == single
        assert (batch.attempt, batch.last_sequence) == (single[-1].attempt, single[-1].last_sequence)


@given(stored_logs())
def test_places_and_times_are_those_of_the_events_and_never_run_backwards(events: list[EncodedEvent]) -> None:
    earlier: dict[int, int] = {}
    for batch, event in zip(read(events), events, strict=True):
        single = batch.events()
        assert (batch.first_sequence, batch.first_timestamp) == (single[0].sequence, single[0].timestamp)
        assert (batch.last_sequence, batch.last_timestamp) == (single[-1].last_sequence, single[-1].timestamp)
        assert (batch.event_type, batch.payload) == (event.event_type, event.payload)
        assert batch.first_timestamp >= earlier.get(batch.attempt, 0)
        earlier[batch.attempt] = batch.last_timestamp


def test_nothing_is_unpacked_before_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [stored(make_batch(1, 50)), stored(make_batch(51, 99))]
    with monkeypatch.context() as patch:
        patch.delattr(packing, "outputs")
        first, second = read(events)
    assert (first.last_sequence, second.first_sequence) == (50, 51)
    assert second.outputs()[0].output == b"line 51\n"


def test_a_batch_that_contains_the_position_comes_whole() -> None:
    (batch,) = read([stored(make_batch(1, 50)), stored(make_batch(51, 99))], start=Position(1, 59))
    assert (batch.first_sequence, batch.last_sequence, batch.cursor) == (51, 99, Position(1, 99).cursor)


def test_a_reader_goes_on_after_the_last_batch() -> None:
    log = BatchLog(replace(REQUEST, from_timestamp=NOON), BEGINNING)
    assert log.take(batch_to_pb(None, packed=True)) is None
    assert log.take(batch_to_pb(stored(make_batch(1, 50, at=NOON - 1)), packed=True)) is None
    assert (log.resume().cursor, log.resume().from_timestamp) == (Position(1, 50).cursor, NOON)
    batch = log.take(batch_to_pb(stored(make_batch(51, 99)), packed=True))
    assert batch
    assert (log.resume().cursor, log.resume().from_timestamp) == (batch.cursor, 0)


def test_outputs_are_there_for_whatever_is_output() -> None:
    batch, line, end = read([stored(make_batch(1, 2)), stored(make_line(3)), stored(make_end(4))])
    assert [output.output for output in batch.outputs()] == [b"line 1\n", b"line 2\n"]
    assert [output.output for output in line.outputs()] == [b"line 3\n"]
    assert end.outputs() == ()


def test_a_buffer_takes_what_is_decoded() -> None:
    buffer = EventBuffer(from_sequence=40)
    for batch in read([stored(make_start()), stored(make_batch(2, 51)), stored(make_line(52))]):
        buffer.add(batch.decode())
    assert [event.sequence for event in iter(buffer.next, None)] == list(range(40, 53))


def test_a_decoded_batch_has_its_place() -> None:
    batch = read([stored(make_line(1)), stored(make_batch(2, 3, at=NOON - 9))])[-1]
    event = batch.decode()
    assert isinstance(event.data, OutputBatch)
    assert (event.attempt, event.sequence, event.last_sequence) == (1, 2, 3)
    assert (event.timestamp, event.cursor) == (NOON, batch.cursor)


@pytest.mark.parametrize("since", [0, NOON + 1])
def test_what_cannot_be_read_is_a_gap(since: int) -> None:
    (batch,) = read([BROKEN], replace(REQUEST, from_timestamp=since))
    assert (batch.event_type, batch.first_timestamp, batch.outputs()) == (EventType.GAP, since, ())
    (event,) = batch.events()
    assert event.data == Gap(first_sequence=1, last_sequence=5, reason="the stored batch cannot be decoded")
    assert (event.attempt, event.timestamp, event.cursor) == (1, since, batch.cursor)


def test_a_batch_whose_outputs_are_damaged_is_a_gap_when_it_is_unpacked() -> None:
    whole = stored(make_batch(1, 50))
    (batch,) = read([replace(whole, payload=encode_event(make_batch(1, 49)).payload)])
    assert batch.event_type is EventType.OUTPUT_BATCH
    assert batch.decode().event_type is EventType.GAP


def test_a_batch_can_be_kept_in_a_file() -> None:
    (batch,) = read([stored(make_batch(1, 50))])
    assert pickle.loads(pickle.dumps(batch)) == batch  # noqa: S301  our own bytes
    assert "payload" not in repr(batch)
