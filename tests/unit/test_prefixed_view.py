"""Several jobs in one place: their names, their lines, and what one of them may break."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from airunner.cli.commands.monitor import _monitor_many, _Watch
from airunner.cli.proof_report import ProofReport
from airunner.cli.screen import following
from airunner.cli.screen.event_view import ViewOptions
from airunner.cli.screen.prefixed_view import PrefixedView, short_labels
from airunner.domain.errors import Unavailable
from airunner.domain.event import Event, EventData, Output, ProcessError, StreamType
from airunner.domain.job import JobState
from airunner.domain.requests import StreamRequest


def event(data: EventData, sequence: int = 1) -> Event:
    return Event(sequence=sequence, timestamp=1_000, data=data, attempt=1)


def test_labels_are_the_shortest_that_tell_jobs_apart() -> None:
    assert short_labels(["a-000000", "b-111111"]) == {"a-000000": "000000", "b-111111": "111111"}
    assert set(short_labels(["a1000000", "b1000000", "c2000000"]).values()) == {
        "a1000000",
        "b1000000",
        "c2000000",
    }
    assert set(short_labels(["xa1000000", "xb1000000", "xc2000000"]).values()) == {
        "a1000000",
        "b1000000",
        "c2000000",
    }


def test_lines_come_whole_and_go_to_their_stream(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    view = PrefixedView("one", 0)
    view.show(event(Output(b"a li")))
    assert capfdbinary.readouterr().out == b""
    view.show(event(Output(b"bad \xff\n", StreamType.STDERR), 2))
    view.show(event(Output(b"ne\nand ano"), 3))
    view.show(event(ProcessError(error_message="it broke"), 4))
    view.finish()
    out, err = capfdbinary.readouterr()
    assert out.decode() == "one │ a line\none │ and ano\n"
    assert err == "one │ bad ".encode() + b"\xff\n" + b"airunner: one: it broke\n"


def test_lines_may_have_their_time(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    PrefixedView("one", 0, timestamps=True).show(event(Output(b"x\n")))
    assert capfdbinary.readouterr().out.decode() == "one │ 1970-01-01T00:00:01.000Z x\n"


class Screen(io.StringIO):
    """A terminal of 40 columns without colours."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, output: bytes, *, timestamps: bool = False) -> list[str]:
    """Return the rows of some output on such a terminal."""
    screen = Screen()
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", "40")
        patch.setenv("NO_COLOR", "1")
        patch.setattr(sys, "stdout", screen)
        PrefixedView("one", 0, timestamps=timestamps).show(event(Output(output)))
    return screen.getvalue().splitlines()


def test_rows_of_a_long_line_stay_beside_the_name_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, b"x" * 34 + b"\n" + b"y" * 70 + b"\n") == [
        "one │ " + "x" * 34,
        "one │ " + "y" * 34,
        "      " + "y" * 34,
        "      " + "yy",
    ]


def test_rows_of_a_long_line_stay_beside_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stamp = "one │ 1970-01-01T00:00:01.000Z "
    rows = [stamp + "x" * 20, " " * len(stamp) + "x" * 5]
    assert shown(monkeypatch, b"x" * 25 + b"\n", timestamps=True) == rows


async def test_one_broken_stream_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = {
        name: SimpleNamespace(job_id=name, result=None, state=JobState.COMPLETED, attempt=1)
        for name in ("the-first", "the-other")
    }

    async def get_job(job_id: str, *, abridge: bool = False) -> Any:
        return jobs[job_id]

    async def follow(client: object, request: StreamRequest, view: PrefixedView, proof: object) -> None:
        if request.job_id == "the-first":
            raise Unavailable("away")
        view.show(event(Output(b"hello\n")))

    monkeypatch.setattr(following, "follow", follow)
    watch = _Watch(request=StreamRequest(job_id="the-first"), options=ViewOptions(), report=ProofReport())
    client: Any = SimpleNamespace(get_job=get_job)
    assert await _monitor_many(client, client, watch, list(jobs)) == 125
    out, err = capfd.readouterr()
    assert out == "-other │ hello\n"
    assert err == "airunner: -first: away\nairunner: job the-other is COMPLETED\n"
