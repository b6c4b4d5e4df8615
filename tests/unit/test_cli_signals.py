"""Two signals end every command that lives long: the first in good order, the second at once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest

from airunner.cli.signals import SHUTDOWN_SIGNALS, on_shutdown_signals
from airunner.testing.conditions import until


@pytest.fixture(autouse=True)
async def handlers_end_with_the_test() -> AsyncIterator[None]:
    yield
    for number in SHUTDOWN_SIGNALS:
        asyncio.get_running_loop().remove_signal_handler(number)


async def test_the_first_signal_stops_and_each_later_one_kills() -> None:
    calls: list[str] = []
    on_shutdown_signals(lambda: calls.append("stop"), lambda: calls.append("kill"))
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: calls == ["stop"])
    signal.raise_signal(signal.SIGINT)
    await until(lambda: calls == ["stop", "kill"])
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: calls == ["stop", "kill", "kill"])


async def test_a_stop_that_fails_leaves_the_second_signal_its_effect() -> None:
    calls: list[str] = []
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def stop() -> None:
        raise RuntimeError("it broke")

    on_shutdown_signals(stop, lambda: calls.append("kill"))
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: bool(failures))
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: calls == ["kill"])
    assert str(failures[0]["exception"]) == "it broke"
