from __future__ import annotations

from airunner.domain.batching import unpack
from airunner.domain.event import Event, EventType, Gap, Output
from airunner.testing.factories import NOON, make_batch, make_end, make_line


def test_a_batch_becomes_single_events_with_their_own_sequence_and_time() -> None:
    batch = make_batch(51, 53, timestamps=[NOON, NOON + 3, NOON + 9])
    assert unpack(batch) == [
        Event(sequence=51, timestamp=NOON, data=Output(b"line 51\n")),
        Event(sequence=52, timestamp=NOON + 3, data=Output(b"line 52\n")),
        Event(sequence=53, timestamp=NOON + 9, data=Output(b"line 53\n")),
    ]
    assert {event.event_type for event in unpack(batch)} == {EventType.OUTPUT_DATA}


def test_a_single_event_is_returned_as_it_is() -> None:
    gap = Event(sequence=3, timestamp=NOON, data=Gap(first_sequence=3, last_sequence=9, reason="lost"))
    for event in (make_line(1), make_end(2), gap):
        assert unpack(event) == [event]


def test_real_timestamps_are_never_replaced() -> None:
    batch = make_batch(1, 2, timestamps=[NOON, NOON + 1])
    assert [event.timestamp for event in unpack(batch, not_before=NOON + 5_000)] == [NOON, NOON + 1]


def test_missing_timestamps_are_simulated_at_the_playback_interval() -> None:
    batch = make_batch(1, 4, timestamps=())
    assert [event.timestamp for event in unpack(batch)] == [NOON, NOON + 50, NOON + 100, NOON + 150]


def test_simulated_timestamps_never_run_backwards_over_batches() -> None:
    # The second batch began 40 ms after the first, but the simulation of the first takes 200 ms.
    first, second = make_batch(1, 5, timestamps=()), make_batch(6, 8, at=NOON + 40, timestamps=())
    last = unpack(first)[-1].timestamp
    stamps = [event.timestamp for event in unpack(second, not_before=last)]
    assert last == NOON + 200
    assert stamps == [NOON + 200, NOON + 250, NOON + 300]


def test_a_batch_after_the_simulated_time_keeps_its_own() -> None:
    batch = make_batch(6, 7, at=NOON + 9_000, timestamps=())
    assert unpack(batch, not_before=NOON + 200)[0].timestamp == NOON + 9_000
