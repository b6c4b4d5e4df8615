"""Callbacks that are run on a loop from anywhere, and output that is passed on by them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from structlog.testing import capture_logs

from airunner.domain.errors import VisibilityLost
from airunner.handlers.loop_callbacks import LoopCallbacks
from airunner.testing.conditions import until
from airunner.worker.handlers.output import JobOutput


async def test_one_that_raises_is_logged_and_the_others_run() -> None:
    ran: list[str] = []

    def fail() -> None:
        raise RuntimeError("a surprise")

    callbacks = LoopCallbacks(asyncio.get_running_loop())
    with capture_logs() as logs:
        # All of them before the loop has a turn: one wake-up is for all.
        for callback in (lambda: ran.append("before"), fail, lambda: ran.append("behind")):
            callbacks.post(callback)
        await until(lambda: ran == ["before", "behind"])
    assert [line["event"] for line in logs] == ["callback.failed"]
    callbacks.post(lambda: ran.append("later"))
    await until(lambda: ran == ["before", "behind", "later"])


class BrokenReport:
    """Stands for a report whose publisher has died."""

    def __init__(self, error: Exception, *, at_once: bool) -> None:
        self._error = error
        self._at_once = at_once

    def output(self, _lines: list[bytes], _is_stderr: bool) -> Any:
        if self._at_once:
            raise self._error
        return self._fail()

    async def _fail(self) -> None:
        raise self._error


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("error", "logged"), [(VisibilityLost(), []), (TypeError("no number"), ["output.failed"])]
)
async def test_output_that_cannot_be_reported_ends_alone(
    error: Exception, logged: list[str], *, at_once: bool
) -> None:
    output = JobOutput(LoopCallbacks(asyncio.get_running_loop()), threading.Condition())
    report: Any = BrokenReport(error, at_once=at_once)
    with capture_logs() as logs:
        output.attach(report)
        output.write("a line\n", is_stderr=False)
        await until(lambda: output._closed)
    assert [line["event"] for line in logs] == logged
    # Nobody is held up by what nobody takes.
    output.write("x" * 10_000_000, is_stderr=False)
