"""Stored events that were damaged: whatever the bytes are, readers get events of their place, or a gap."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from airunner.codec.events import decode_event, encode_event
from airunner.domain.batching import unpack
from airunner.domain.event import EncodedEvent, Event, Gap
from airunner.testing.factories import make_batch, make_end, make_error, make_line, make_start

STORED = [
    encode_event(event).of_attempt(1)
    for event in (make_line(7), make_batch(7, 16), make_start(7), make_end(7), make_error(7))
]


@st.composite
def damaged_payloads(draw: st.DrawFn, payload: bytes) -> bytes:
    """Payloads of which bytes were changed, lost or added."""
    changed = bytearray(payload)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(changed)))
        new = draw(st.binary(max_size=3))
        changed[place : place + draw(st.integers(0, 3))] = new
    return bytes(changed)


@given(st.data(), st.sampled_from(STORED))
def test_readers_get_events_of_the_place_or_a_gap(data: st.DataObject, whole: EncodedEvent) -> None:
    payload = data.draw(damaged_payloads(whole.payload))
    events: list[Event] = list(unpack(decode_event(replace(whole, payload=payload)), not_before=0))
    if len(events) == 1 and isinstance(events[0].data, Gap):
        gap = events[0].data
        assert (gap.first_sequence, gap.last_sequence) == (whole.first_sequence, whole.last_sequence)
    else:
        sequences = [event.sequence for event in events]
        assert sequences == list(range(whole.first_sequence, whole.last_sequence + 1))
