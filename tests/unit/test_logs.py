"""Logs never harm whoever writes them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from airunner.telemetry.logs import logs_dropped, set_up_logs


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no text for this")


@pytest.fixture(autouse=True)
def unchanged() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def dropped() -> float:
    return logs_dropped.read()[()]


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
