from __future__ import annotations

from airunner.domain.event import Event, Gap
from airunner.reading.event_buffer import EventBuffer
from airunner.testing.factories import NOON, make_batch, make_end, make_line, make_start


def read_all(buffer: EventBuffer) -> list[int]:
    sequences = []
    while (event := buffer.next()) is not None:
        sequences.append(event.sequence)
    return sequences


def filled(from_sequence: int = 1) -> EventBuffer:
    buffer = EventBuffer(from_sequence)
    for event in (make_start(1), make_batch(2, 51), make_line(52), make_batch(53, 60), make_end(61)):
        buffer.add(event)
    return buffer


def test_batches_and_single_events_come_out_one_by_one_in_order() -> None:
    buffer = filled()
    assert len(buffer) == 61
    assert read_all(buffer) == list(range(1, 62))
    assert len(buffer) == 0
    assert buffer.next() is None


def test_reading_begins_in_the_middle_of_a_batch() -> None:
    assert read_all(filled(from_sequence=40)) == list(range(40, 62))


def test_reading_begins_after_everything() -> None:
    assert read_all(filled(from_sequence=62)) == []


def test_events_can_be_added_while_reading() -> None:
    buffer = EventBuffer()
    buffer.add(make_batch(1, 2))
    assert read_all(buffer) == [1, 2]
    buffer.add(make_batch(3, 4))
    assert read_all(buffer) == [3, 4]


def test_rewind_reads_again_from_any_sequence() -> None:
    buffer = filled()
    read_all(buffer)
    buffer.rewind(50)
    assert len(buffer) == 12
    assert read_all(buffer) == list(range(50, 62))
    buffer.rewind(1)
    assert len(read_all(buffer)) == 61
    buffer.rewind(99)
    assert read_all(buffer) == []


def test_rewind_can_also_go_forward() -> None:
    buffer = filled()
    buffer.rewind(60)
    assert read_all(buffer) == [60, 61]


def test_what_was_read_can_be_forgotten() -> None:
    buffer = filled()
    for _ in range(10):
        buffer.next()
    buffer.forget()
    assert len(buffer) == 51
    buffer.rewind(1)
    assert read_all(buffer)[0] == 11


def test_a_gap_that_reaches_into_the_wanted_part_is_kept() -> None:
    gap = Event(sequence=3, timestamp=NOON, data=Gap(first_sequence=3, last_sequence=9, reason="lost"))
    buffer = EventBuffer(from_sequence=5)
    buffer.add(gap)
    assert read_all(buffer) == [3]


def test_simulated_timestamps_never_run_backwards() -> None:
    buffer = EventBuffer()
    buffer.add(make_batch(1, 5, timestamps=()))
    buffer.add(make_batch(6, 8, at=NOON + 40, timestamps=()))
    buffer.add(make_line(9, at=NOON + 9_000))
    stamps = [event.timestamp for event in iter(buffer.next, None)]
    assert len(stamps) == 9
    assert stamps == sorted(stamps)
