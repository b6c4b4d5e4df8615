"""Logs never harm whoever writes them."""

from __future__ import annotations

import gc
import json
import logging
import os
import re
import subprocess
import sys
import threading
from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
import structlog

import airunner
from airunner.telemetry.logs import log_together, logs_dropped, set_up_logs


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no text for this")


def dropped() -> float:
    return logs_dropped.read()[()]


class Pieces(StringIO):
    """A file that keeps what it was given, call by call."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []

    def write(self, text: str, /) -> int:
        self.pieces.append(text)
        return len(text)


def events(piece: str) -> list[str]:
    return [json.loads(line)["event"] for line in piece.splitlines()]


def test_a_line_is_one_piece_and_lines_that_belong_together_are_one_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = Pieces()
    monkeypatch.setattr(sys, "stderr", file)
    set_up_logs("info", "json")
    log = structlog.get_logger("airunner.test")
    log.info("alone")
    log_together(
        log, [(logging.INFO, "one", {}), (logging.DEBUG, "unwanted", {}), (logging.ERROR, "two", {})]
    )
    log_together(log, [(logging.DEBUG, "unwanted", {})])
    assert [events(piece) for piece in file.pieces] == [["alone"], ["one", "two"]]


def test_a_finalizer_that_logs_in_the_midst_of_a_line_waits_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unclosed:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            log.warning("unclosed")

    class Collecting(Pieces):
        """A file in whose midst the garbage collector runs."""

        def write(self, text: str, /) -> int:
            gc.collect()
            return super().write(text)

    file = Collecting()
    monkeypatch.setattr(sys, "stderr", file)
    set_up_logs("info", "json")
    log = structlog.get_logger("airunner.test")
    Unclosed()
    # One that waits for itself fails the test instead of hanging it.
    thread = threading.Thread(target=log.info, args=("alone",), daemon=True)
    thread.start()
    thread.join(20)
    assert [events(piece) for piece in file.pieces] == [["unclosed"], ["alone"]]


def test_a_line_says_the_same_whether_it_is_logged_alone_or_with_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logs("info", "json")
    log = structlog.get_logger("airunner.test")
    fields = {"queue": "builds", "count": 3, "batching": {"adaptive": True}, "text": "ä\n", "other": object}
    log.warning("something.happened", **fields)
    log_together(log, [(logging.WARNING, "something.happened", fields)])
    alone, together = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert list(together) == list(alone)
    now, later = (datetime.fromisoformat(line.pop("timestamp")) for line in (alone, together))
    assert now <= later <= now + timedelta(minutes=1)
    assert together == alone


def test_of_lines_that_belong_together_only_one_that_cannot_be_shown_is_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_logs("info", "json")
    before = dropped()
    log = structlog.get_logger("airunner.test")
    log_together(
        log,
        [(logging.INFO, "one", {}), (logging.INFO, "two", {"v": Unshowable()}), (logging.INFO, "3", {})],
    )
    assert events(capsys.readouterr().err) == ["one", "3"]
    assert dropped() == before + 1


def test_lines_for_people_hold_no_control_sequences_but_their_own_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    set_up_logs("info", "console")
    hostile = "\x1b]0;title\x07\x9b2J"
    error = RuntimeError(f"{hostile}\nsecond line")
    structlog.get_logger("airunner.test").warning("handler.failed", error=hostile, exc_info=error)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())
    assert shown.replace("\n", "").isprintable()
    assert r"error=\x1b]0;title\x07\x9b2J" in shown
    assert r"RuntimeError: \x1b]0;title\x07\x9b2J" in shown
    assert "\nsecond line\n" in shown


def test_lines_that_belong_together_go_through_what_a_program_has_configured() -> None:
    with structlog.testing.capture_logs() as lines:
        log_together(structlog.get_logger(), [(logging.INFO, "one", {"a": 1}), (logging.ERROR, "two", {})])
    assert lines == [{"event": "one", "log_level": "info", "a": 1}, {"event": "two", "log_level": "error"}]


@pytest.mark.parametrize("processors", [[], [lambda *_: 1 / 0]])
def test_a_program_that_configured_nonsense_harms_nobody(
    processors: list[structlog.typing.Processor],
) -> None:
    structlog.configure(processors=processors)
    try:
        log_together(structlog.get_logger(), [(logging.INFO, "one", {})])
    finally:
        structlog.reset_defaults()


def test_lines_that_belong_together_are_dropped_together(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", buffering=1, encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        set_up_logs("info", "json")
        before = dropped()
        log_together(structlog.get_logger(), [(logging.INFO, "one", {}), (logging.INFO, "two", {})])
        assert dropped() == before + 2
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def test_a_pipe_that_nobody_reads_drops_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        set_up_logs("info", "json")
        before = dropped()
        log = structlog.get_logger("airunner.test")
        for _ in range(3):
            log.info("something.happened")
        assert dropped() == before + 3
        # What is left in its buffer would fail again when it is closed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def test_a_disk_without_room_drops_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("w", buffering=1, encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        set_up_logs("info", "json")
        before = dropped()
        structlog.get_logger("airunner.test").error("something.happened", exc_info=RuntimeError("why"))
        assert dropped() == before + 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def test_lines_are_written_again_when_there_is_room(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_up_logs("info", "json")
    log = structlog.get_logger("airunner.test")
    log.info("one", value=Unshowable())
    log.info("two")
    assert '"event": "two"' in capsys.readouterr().err


_LIBRARY = """
import structlog, sys
from airunner.domain.job import JobParams
from airunner.telemetry.logs import get_logger

log = get_logger("airunner.test")

def work():
    params = JobParams(command="make", environment={"TOKEN": "hush-hush"})
    raise RuntimeError("it broke")

def fail():
    try:
        work()
    except RuntimeError as error:
        log.info("nobody.asked")
        log.error("something.failed", exc_info=error, job_id="j1")
"""


def test_a_program_that_configured_nothing_sees_warnings_and_no_values() -> None:
    done = _run(_LIBRARY + "fail(); print(structlog.is_configured())")
    assert done.stdout == "False\n"
    lines = done.stderr.splitlines()
    assert "something.failed" in lines[0]
    assert "job_id=j1" in lines[0]
    assert lines[-1] == "RuntimeError: it broke"
    assert ", in work" in done.stderr
    assert "hush-hush" not in done.stderr
    assert "nobody.asked" not in done.stderr


def test_a_program_with_a_configuration_of_its_own_keeps_it() -> None:
    configured = """
fail()
def keep(_, method, event):
    print(method, event["event"])
    raise structlog.DropEvent
structlog.configure(processors=[keep])
fail()
"""
    done = _run(_LIBRARY + configured)
    assert done.stdout == "info nobody.asked\nerror something.failed\n"
    assert done.stderr.count("something.failed") == 1


def test_lines_of_a_library_that_cannot_be_written_are_dropped() -> None:
    done = _run(_LIBRARY + "sys.stderr.close(); fail(); print('went on')")
    assert done.stdout == "went on\n"


def test_every_logger_is_one_that_shows_no_values() -> None:
    package = Path(airunner.__file__).parent
    asking = [file for file in package.rglob("*.py") if "structlog.get_logger(" in file.read_text()]
    assert asking == [package / "telemetry" / "logs.py"]


def _run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
