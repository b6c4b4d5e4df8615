"""How events are shown, and when."""

from __future__ import annotations

import io
import json

import pytest

from airunner.cli.channels import ExactChannel
from airunner.cli.event_view import JsonView, PeopleView
from airunner.cli.monitor import event_types
from airunner.cli.playback import Pace, choose_factor
from airunner.cli.terminal import StatusLine
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


class ListeningClock:
    """A clock whose sleeps are written down and take no time but their own."""

    def __init__(self) -> None:
        self.instant = 1_000_000
        self.slept: list[float] = []

    def now(self) -> int:
        return self.instant

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.instant += round(seconds * 1000)

    def call_at(self, *_: object) -> None:
        raise AssertionError


def event(data: EventData, sequence: int = 1, timestamp: int = 1_000, attempt: int = 1) -> Event:
    return Event(sequence=sequence, timestamp=timestamp, data=data, attempt=attempt, cursor="1-1")


def test_streams_are_kept_apart(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = io.BytesIO(), io.BytesIO()
    view = PeopleView(ExactChannel(out), ExactChannel(err), StatusLine(io.StringIO(), enabled=False))
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
        ExactChannel(io.BytesIO()), ExactChannel(io.BytesIO()), StatusLine(io.StringIO(), enabled=False)
    )
    view.show(event(ProcessError(error_message="no such command")))
    view.show(event(Gap(first_sequence=2, last_sequence=9, reason="disk died"), 2))
    said = capsys.readouterr().err
    assert said == "airunner: no such command\nairunner: events 2 to 9 are lost: disk died\n"


def test_the_status_says_how_far_it_is() -> None:
    status = io.StringIO()
    out = ExactChannel(io.BytesIO())
    view = PeopleView(out, ExactChannel(io.BytesIO()), StatusLine(status, enabled=True))
    view.show(event(Output(b"one\n"), 7, timestamp=1_000))
    view.tick(3_500)
    assert "event 7, 2.5 s" in status.getvalue()
    view.show(event(ProcessEnd(pid=1, exit_code=0, run_duration_ms=5), 8))
    view.tick(3_500)
    assert "event 8 of 8, 2.5 s" in status.getvalue()


def test_the_status_leaves_an_unfinished_line_alone() -> None:
    status = io.StringIO()
    out = ExactChannel(io.BytesIO())
    view = PeopleView(out, ExactChannel(io.BytesIO()), StatusLine(status, enabled=True))
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


@pytest.mark.parametrize(
    ("factor", "slept"), [(0.0, []), (1.0, [0.5, 1.5]), (2.0, [1.0, 3.0]), (0.5, [0.25, 0.75])]
)
async def test_playback_keeps_the_recorded_distances(factor: float, slept: list[float]) -> None:
    clock = ListeningClock()
    pace = Pace(clock, factor)  # type: ignore[arg-type]  # only what Pace uses
    for timestamp in (1_000, 1_500, 1_500, 3_000):
        await pace.wait_for(event(Output(b""), timestamp=timestamp))
    assert clock.slept == slept


async def test_playback_begins_anew_with_each_attempt() -> None:
    clock = ListeningClock()
    pace = Pace(clock, 1.0)  # type: ignore[arg-type]  # only what Pace uses
    await pace.wait_for(event(Output(b""), timestamp=1_000))
    await pace.wait_for(event(Output(b""), timestamp=900_000, attempt=2))
    await pace.wait_for(event(Output(b""), timestamp=900_100, attempt=2))
    assert clock.slept == [0.1]


async def test_what_is_late_already_waits_no_more() -> None:
    clock = ListeningClock()
    pace = Pace(clock, 1.0)  # type: ignore[arg-type]  # only what Pace uses
    await pace.wait_for(event(Output(b""), timestamp=1_000))
    clock.instant += 10_000
    await pace.wait_for(event(Output(b""), timestamp=5_000))
    assert clock.slept == []


@pytest.mark.parametrize(
    ("options", "factor"),
    [
        ({}, 0.0),
        ({"fast": True}, 0.0),
        ({"playback": True}, 1.0),
        ({"slow": True}, 2.0),
        ({"speed": "2x"}, 0.5),
        ({"speed": "4", "playback": True}, 0.25),
        ({"speed": "0.5x"}, 2.0),
    ],
)
def test_options_choose_the_pace(options: dict[str, bool | str], factor: float) -> None:
    chosen = {"playback": False, "slow": False, "speed": "", "fast": False} | options
    assert choose_factor(**chosen) == factor  # type: ignore[arg-type]  # the keys decide


@pytest.mark.parametrize(
    "options",
    [
        {"fast": True, "slow": True},
        {"slow": True, "speed": "2x"},
        {"speed": "0"},
        {"speed": "-1x"},
        {"speed": "quick"},
        {"speed": "1e9"},
    ],
)
def test_a_pace_that_makes_no_sense_is_refused(options: dict[str, bool | str]) -> None:
    chosen = {"playback": False, "slow": False, "speed": "", "fast": False} | options
    with pytest.raises(InvalidArgument):
        choose_factor(**chosen)  # type: ignore[arg-type]  # the keys decide


def test_event_types_have_names() -> None:
    assert event_types(("output", "GAP,process_end")) == {
        EventType.OUTPUT_DATA,
        EventType.GAP,
        EventType.PROCESS_END,
    }
    assert event_types(()) == frozenset()
    with pytest.raises(InvalidArgument, match="not 'outpt'"):
        event_types(("outpt",))
