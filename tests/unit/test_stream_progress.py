"""Where a stream of events starts, and which events of a stored batch are part of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.codec.events import decode_event, encode_event
from airunner.domain.errors import InvalidArgument
from airunner.domain.event import BEGINNING, EncodedEvent, Event, Position, StreamProgress, start_position
from airunner.domain.requests import StreamRequest
from airunner.testing.factories import NOON, make_batch

CURSOR = Position(2, 7).cursor


@pytest.mark.parametrize(
    ("request_", "start"),
    [
        (StreamRequest(job_id="a"), BEGINNING),
        (StreamRequest(job_id="a", cursor=CURSOR), Position(2, 7)),
        (StreamRequest(job_id="a", attempt=1), Position(1, 0)),
        (StreamRequest(job_id="a", attempt=1, from_sequence=5), Position(1, 4)),
        (StreamRequest(job_id="a", from_sequence=5), Position(3, 4)),
        (StreamRequest(job_id="a", attempt=1, cursor=CURSOR), Position(2, 7)),
        (StreamRequest(job_id="a", attempt=2, from_sequence=9, cursor=CURSOR), Position(2, 8)),
        (StreamRequest(job_id="a", attempt=2, from_sequence=3, cursor=CURSOR), Position(2, 7)),
    ],
)
def test_a_stream_starts_after_the_later_of_its_conditions(request_: StreamRequest, start: Position) -> None:
    assert start_position(request_, current_attempt=3) == start


def test_before_the_first_attempt_a_sequence_is_one_of_the_first() -> None:
    assert start_position(StreamRequest(job_id="a", from_sequence=5), 0) == Position(1, 4)


@pytest.mark.parametrize("cursor", ["x", "1", "1-", "-1", "1-2-3"])
def test_a_cursor_of_somebody_else_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidArgument, match="cursor"):
        StreamRequest(job_id="a", cursor=cursor).validate()


def stored(event: Event, attempt: int = 1) -> EncodedEvent:
    return encode_event(event).of_attempt(attempt)


def take(progress: StreamProgress, encoded: EncodedEvent) -> list[Event]:
    return progress.take(encoded, decode_event(encoded))


def test_the_part_of_a_batch_after_the_position_is_taken() -> None:
    progress = StreamProgress(Position(1, 3))
    taken = take(progress, stored(make_batch(1, 5)))
    assert [(event.sequence, event.attempt, event.cursor) for event in taken] == [
        (4, 1, "1-4"),
        (5, 1, "1-5"),
    ]
    assert progress.position == Position(1, 5)


def test_a_batch_that_came_before_is_not_taken_again() -> None:
    progress = StreamProgress(BEGINNING)
    assert len(take(progress, stored(make_batch(1, 5), attempt=2))) == 5
    assert take(progress, stored(make_batch(1, 5), attempt=2)) == []
    assert take(progress, stored(make_batch(1, 5), attempt=1)) == []
    assert progress.position == Position(2, 5)


def test_what_is_too_old_is_passed_over() -> None:
    batch = stored(make_batch(1, 3, timestamps=(NOON, NOON + 1, NOON + 2)))
    progress = StreamProgress(BEGINNING, from_timestamp=NOON + 1)
    assert [event.sequence for event in take(progress, batch)] == [2, 3]
    assert (progress.position, progress.last_timestamp) == (Position(1, 3), NOON + 2)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(0, 30), st.data())
def test_a_stream_that_breaks_anywhere_goes_on_with_the_next_event(
    sizes: list[int], start: int, data: st.DataObject
) -> None:
    """A reader that resumes at the cursor of any event gets all that follow it, however they are stored."""
    batches, first = [], 1
    for size in sizes:
        batches.append(stored(make_batch(first, first + size - 1)))
        first += size
    whole = StreamProgress(Position(1, start))
    events = [event for batch in batches for event in take(whole, batch)]
    assert [event.sequence for event in events] == list(range(start + 1, first))
    if events:
        last_seen = data.draw(st.sampled_from(events))
        resumed = StreamProgress(Position.from_cursor(last_seen.cursor))
        again = [event for batch in batches for event in take(resumed, batch)]
        assert [event.sequence for event in again] == list(range(last_seen.sequence + 1, first))


def test_a_clock_that_was_set_back_between_two_publishes_shows_no_time_twice() -> None:
    progress = StreamProgress(BEGINNING)
    times = [
        event.timestamp
        for batch in (
            make_batch(1, 2, at=NOON),
            make_batch(3, 4, at=NOON - 5_000),
            make_batch(5, 6, at=NOON + 1),
        )
        for event in take(progress, stored(batch))
    ]
    assert times == [NOON, NOON, NOON, NOON, NOON + 1, NOON + 1]
    assert take(progress, stored(make_batch(1, 1, at=NOON - 9_000), attempt=2))[0].timestamp == NOON - 9_000


def test_what_follows_the_first_wanted_event_is_wanted_whatever_its_time() -> None:
    progress = StreamProgress(BEGINNING, from_timestamp=NOON)
    assert take(progress, stored(make_batch(1, 2, at=NOON - 1))) == []
    assert progress.from_timestamp == NOON
    later = [make_batch(3, 4, at=NOON), make_batch(5, 6, at=NOON - 5_000)]
    assert [event.sequence for batch in later for event in take(progress, stored(batch))] == [3, 4, 5, 6]
    assert progress.from_timestamp == 0
    assert len(take(progress, stored(make_batch(1, 2, at=NOON - 9_000), attempt=2))) == 2
