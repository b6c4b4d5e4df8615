"""Two signals end every command that lives long: the first in good order, the second at once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from airunner.cli.session import run_until_interrupted
from airunner.cli.signals import on_shutdown_signals
from airunner.testing.conditions import until

# A command whose loop stands still, in a call that lets nobody else have its turn on the loop.
STUCK = """
import asyncio, time
from airunner.cli.signals import on_shutdown_signals

async def main():
    on_shutdown_signals(lambda: print("stop"), lambda: print("kill"))
    print("ready", flush=True)
    time.sleep(600)

asyncio.run(main())
"""
# A client that is interrupted again while it cleans up, within the second that it has for that.
CLIENT = """
import asyncio, os, signal
from airunner.cli.session import run_until_interrupted

async def work():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(600)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        print("cleaned up", flush=True)

try:
    run_until_interrupted(work())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
DEAF = STUCK.replace("time.sleep(600)", "await asyncio.sleep(600)")

Catch = Callable[..., None]


@pytest.fixture
def catch() -> Iterator[Catch]:
    undo: list[Callable[[], None]] = []
    # The tests themselves may run under nohup.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def catch(stop: Callable[[], object], kill: Callable[[], object], ended: list[int]) -> None:
        undo.append(on_shutdown_signals(stop, kill, end_process=ended.append))

    yield catch
    for take_back in undo:
        take_back()
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_the_first_signal_stops_and_each_later_one_kills(catch: Catch, first: signal.Signals) -> None:
    calls: list[str] = []
    catch(lambda: calls.append("stop"), lambda: calls.append("kill"), [])
    signal.raise_signal(first)
    await until(lambda: calls == ["stop"])
    signal.raise_signal(signal.SIGINT)
    await until(lambda: calls == ["stop", "kill"])
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: calls == ["stop", "kill", "kill"])


async def test_a_stop_that_fails_leaves_the_second_signal_its_effect(catch: Catch) -> None:
    calls: list[str] = []
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

    def stop() -> None:
        raise RuntimeError("it broke")

    catch(stop, lambda: calls.append("kill"), [])
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: bool(failures))
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: calls == ["kill"])
    assert str(failures[0]["exception"]) == "it broke"


async def test_the_process_ends_soon_after_the_second_signal(catch: Catch) -> None:
    ended: list[int] = []
    catch(lambda: None, lambda: None, ended)
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    await until(lambda: ended == [128 + signal.SIGTERM])


@pytest.mark.parametrize("program", [STUCK, DEAF], ids=["stuck", "deaf"])
def test_two_signals_end_a_process_whatever_hangs(program: str) -> None:
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGTERM)
        time_of_second = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in {128 + signal.SIGTERM, 128 + signal.SIGINT}
        assert time.monotonic() - time_of_second < 10


def test_an_ignored_hangup_stays_ignored() -> None:
    with subprocess.Popen(
        ["nohup", sys.executable, "-c", DEAF],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGHUP)
        # Different ones: two of a kind that come together are one.
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) in {128 + signal.SIGTERM, 128 + signal.SIGINT}


def test_a_client_cleans_up_however_quickly_the_second_signal_comes() -> None:
    # The tests themselves may run in the background.
    program = f"import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{CLIENT}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("cleaned up\ninterrupted\n", "")


def test_a_client_ends_at_once_when_it_is_terminated() -> None:
    program = CLIENT.replace("SIGINT", "SIGTERM")
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGTERM


def test_a_client_in_the_background_of_a_script_is_not_interrupted() -> None:
    # A shell has what it starts with & ignore SIGINT: Ctrl-C is for whoever is in the foreground.
    async def taken() -> object:
        return signal.getsignal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert run_until_interrupted(taken()) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
