"""How events are shown, and when."""

from __future__ import annotations

import io
import json

import pytest

from airunner.cli.commands.monitor import event_types
from airunner.cli.screen.event_view import JsonView, PeopleView
from airunner.cli.screen.output_streams import ExactStream
from airunner.cli.screen.terminal import StatusLine
from airunner.domain.errors import InvalidArgument
from airunner.domain.event import (
    Event,
    EventData,
    EventType,
    Gap,
    Output,
    ProcessEnd,
    ProcessError,
    ProcessStart,
    StreamType,
)


def event(data: EventData, sequence: int = 1, timestamp: int = 1_000, attempt: int = 1) -> Event:
    return Event(sequence=sequence, timestamp=timestamp, data=data, attempt=attempt, cursor="1-1")


def test_streams_are_kept_apart(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    view = PeopleView(ExactStream(out), ExactStream(err), StatusLine(io.StringIO(), enabled=False))
    view.show(event(ProcessStart(pid=1, started_at=1)))
    view.show(event(Output(b"one\n"), 2))
    view.show(event(Output(b"bad\n", StreamType.STDERR), 3))
    view.show(event(ProcessEnd(pid=1, exit_code=0, run_duration_ms=5), 4))
    view.finish()
    assert (out.getvalue(), err.getvalue()) == (b"one\n", b"bad\n")
    # Where there is no terminal, nobody is told what only a person wants to know.
    assert capsys.readouterr() == ("", "")


def test_losses_and_errors_are_always_told(capsys: pytest.CaptureFixture[str]) -> None:
    view = PeopleView(
        ExactStream(io.BytesIO()), ExactStream(io.BytesIO()), StatusLine(io.StringIO(), enabled=False)
    )
    view.show(event(ProcessError(error_message="no such command")))
    view.show(event(Gap(first_sequence=2, last_sequence=9, reason="disk died"), 2))
    said = capsys.readouterr().err
    assert said == "airunner: no such command\nairunner: events 2 to 9 are lost: disk died\n"


def test_what_a_job_says_of_its_errors_moves_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    view = PeopleView(
        ExactStream(io.BytesIO()), ExactStream(io.BytesIO()), StatusLine(io.StringIO(), enabled=False)
    )
    view.show(event(ProcessError(error_message="no \x1b]0;title\x07such\x9b2J command\nat all")))
    view.show(event(Gap(first_sequence=2, last_sequence=9, reason="\x1b[2Jdied"), 2))
    assert capsys.readouterr().err == (
        "airunner: no  ]0;title such 2J command\n"
        "airunner: at all\n"
        "airunner: events 2 to 9 are lost:  [2Jdied\n"
    )


def test_the_status_says_how_far_it_is() -> None:
    status = io.StringIO()
    out = ExactStream(io.BytesIO())
    view = PeopleView(out, ExactStream(io.BytesIO()), StatusLine(status, enabled=True))
    view.show(event(Output(b"one\n"), 7, timestamp=1_000))
    view.tick(3_500)
    assert "event 7, 2.5 s" in status.getvalue()
    view.show(event(ProcessEnd(pid=1, exit_code=0, run_duration_ms=5), 8))
    view.tick(3_500)
    assert "event 8 of 8, 2.5 s" in status.getvalue()


def test_the_status_says_how_a_playback_goes_on() -> None:
    status = io.StringIO()
    view = PeopleView(ExactStream(io.BytesIO()), ExactStream(io.BytesIO()), StatusLine(status, enabled=True))
    view.mode_changed("paused")
    view.show(event(Output(b"one\n"), 7))
    view.tick(1_000)
    assert "event 7, 0.0 s, paused" in status.getvalue()


def test_the_status_says_where_in_the_recording_a_playback_is() -> None:
    """It counted from the first event that was shown, and below zero after a seek back."""
    status = io.StringIO()
    view = PeopleView(
        ExactStream(io.BytesIO()), ExactStream(io.BytesIO()), StatusLine(status, enabled=True), 9
    )
    view.played_to(1_500)
    view.tick(5_000)
    assert "event 0 of 9, 1.5 s" in status.getvalue()
    view.played_to(2_000)
    view.show(event(Output(b"one\n"), 7, timestamp=3_000))
    view.tick(5_000)
    assert "event 7 of 9, 2.0 s" in status.getvalue()
    view.played_to(500)
    view.show(event(Output(b"two\n"), 2, timestamp=1_500))
    view.tick(5_000)
    assert "event 2 of 9, 0.5 s" in status.getvalue()


def test_the_status_leaves_an_unfinished_line_alone() -> None:
    status = io.StringIO()
    out = ExactStream(io.BytesIO())
    view = PeopleView(out, ExactStream(io.BytesIO()), StatusLine(status, enabled=True))
    view.show(event(Output(b"prompt> ")))
    view.tick(3_500)
    assert status.getvalue() == ""


def test_json_has_text_or_base64(capsys: pytest.CaptureFixture[str]) -> None:
    view = JsonView("some-job")
    view.show(event(Output("grün\n".encode())))
    view.show(event(Output(b"\xff", StreamType.STDERR), 2))
    text, binary = map(json.loads, capsys.readouterr().out.splitlines())
    assert (text["v"], text["type"], text["job_id"]) == (1, "event", "some-job")
    assert (text["stream"], text["output"]) == ("stdout", "grün\n")
    assert (binary["stream"], binary["output_base64"]) == ("stderr", "/w==")
    assert "output" not in binary
    assert text["timestamp"] == "1970-01-01T00:00:01.000Z"


def test_json_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    output = "\x1b]0;title\x07 \x9b2J \x7f gr\u00fcn"
    JsonView("some-job").show(event(Output(output.encode())))
    printed = capsys.readouterr().out.rstrip("\n")
    assert printed.isprintable()
    assert "gr\u00fcn" in printed
    assert json.loads(printed)["output"] == output


def test_event_types_have_names() -> None:
    assert event_types(("output", "GAP,process_end")) == {
        EventType.OUTPUT_DATA,
        EventType.GAP,
        EventType.PROCESS_END,
    }
    assert event_types(()) == frozenset()
    with pytest.raises(InvalidArgument, match="not 'outpt'"):
        event_types(("outpt",))
