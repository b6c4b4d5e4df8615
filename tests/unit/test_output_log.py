"""Output that is copied in whole batches is the output that is put together line by line."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.cli.commands.logs import _LinePrinter
from airunner.client.stream_log import OutputLog, WatchedLog
from airunner.codec.events import encode_event, whole_lines
from airunner.codec.streams import batch_to_pb
from airunner.domain.event import (
    BEGINNING,
    EncodedEvent,
    Event,
    Gap,
    Output,
    OutputBatch,
    Position,
    StreamType,
)
from airunner.domain.requests import StreamRequest
from airunner.reading.log_lines import LineAssembly, LineFilter
from airunner.testing.factories import NOON, make_batch

REQUEST = StreamRequest(job_id="a")
PIECES = st.sampled_from(
    [b"", b"a", b"a\n", b"b\nc\n", b"b\nc", b"\n", b"\r", b"x\r\n", b"long " * 80 + b"\n"]
)
OUTPUTS = st.builds(Output, PIECES, st.sampled_from(StreamType))


@st.composite
def stored_logs(draw: st.DrawFn) -> list[EncodedEvent]:
    """Return the stored events of some attempts: batches, single outputs, gaps, and damaged ones."""
    found = []
    for attempt in range(1, draw(st.integers(1, 3)) + 1):
        sequence = 1
        for _ in range(draw(st.integers(0, 5))):
            event = draw(_events(sequence))
            encoded = encode_event(event).of_attempt(attempt)
            if draw(st.integers(0, 9)) == 0:
                encoded = replace(encoded, payload=b"\xff")
            found.append(encoded)
            sequence = event.last_sequence + 1
    return found


@st.composite
def _events(draw: st.DrawFn, first: int) -> Event:
    kind = draw(st.sampled_from(["lines", "lines", "pieces", "timeless", "single", "gap"]))
    if kind == "single":
        return Event(first, NOON, draw(OUTPUTS))
    count = draw(st.integers(1, 4))
    last = first + count - 1
    if kind == "gap":
        return Event(first, NOON, Gap(first_sequence=first, last_sequence=last, reason="lost"))
    outputs = draw(st.lists(OUTPUTS, min_size=count, max_size=count))
    if kind == "lines":
        outputs = [replace(output, output=output.output + b"\n") for output in outputs]
    times = () if kind == "timeless" else tuple(NOON + first + at for at in range(count))
    batch = OutputBatch(outputs=tuple(outputs), start_sequence=first, end_sequence=last, timestamps=times)
    return Event(first, NOON, batch)


class Standard:
    """Standard output of a pipe."""

    def __init__(self) -> None:
        self.buffer = io.BytesIO()

    def isatty(self) -> bool:
        return False


def printed(events: Iterable[EncodedEvent], log: WatchedLog | OutputLog, *, again: int) -> bytes:
    """Return what `logs` prints; each message comes `again` times, as after a connection that broke."""
    standard = Standard()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", standard)
        printer, assembly = _LinePrinter(LineFilter(), timestamps=False), LineAssembly()
        for encoded in events:
            for _ in range(again):
                taken = log.take(batch_to_pb(encoded, packed=True))
                if isinstance(taken, bytes):
                    printer.copy(taken)
                    continue
                for event in taken:
                    for line in assembly.feed(event):
                        printer.show(line)
        for line in assembly.finish():
            printer.show(line)
    return standard.buffer.getvalue()


@given(stored_logs(), st.integers(1, 2), st.integers(0, 6))
def test_both_ways_to_read_print_the_same(events: list[EncodedEvent], again: int, after: int) -> None:
    start = Position(1, after) if after else BEGINNING
    one_by_one, whole = WatchedLog(REQUEST, start), OutputLog(REQUEST, start)
    assert printed(events, whole, again=again) == printed(events, one_by_one, again=again)
    assert whole.resume() == one_by_one.resume()


def test_whole_lines_are_copied() -> None:
    log = OutputLog(REQUEST, BEGINNING)
    taken = [log.take(batch_to_pb(stored(first), packed=True)) for first in (1, 51)]
    assert b"".join(piece for piece in taken if isinstance(piece, bytes)).count(b"\n") == 100
    # What came before comes to nothing.
    assert log.take(batch_to_pb(stored(1), packed=True)) == []
    assert log.take(batch_to_pb(None, packed=True)) == b""


@pytest.mark.parametrize(
    "change",
    [
        {"payload": b"\xff"},
        {"first_sequence": 2},
        {"last_sequence": 51},
        {"payload": encode_event(make_batch(2, 51)).payload},
        {"payload": encode_event(Event(1, NOON, Output(b"a\n", StreamType.STDOUT))).payload},
    ],
)
def test_what_is_not_what_its_place_says_is_for_the_decoder(change: dict[str, object]) -> None:
    assert whole_lines(stored(1)) is not None
    assert whole_lines(replace(stored(1), **change)) is None  # type: ignore[arg-type]  # by name


def stored(first: int) -> EncodedEvent:
    return encode_event(make_batch(first, first + 49)).of_attempt(1)
