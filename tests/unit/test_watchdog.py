"""The watchdog of the worker's loop: when it has stacks shown, and what it says afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from airunner import telemetry
from airunner.handlers.busy_threads import BusyThreads
from airunner.testing.clock import ManualClock
from airunner.worker.watchdog import LoopWatchdog

LIMIT_SECONDS = 30


class Stacks:
    """Remembers for when it was armed."""

    def __init__(self) -> None:
        self.armed: list[float] = []
        self.closed = False

    def arm(self, seconds: float) -> None:
        self.armed.append(seconds)

    def close(self) -> None:
        self.closed = True


class Bench:
    """A watchdog whose loop beats when the clock is moved, and stands still in between."""

    def __init__(self, visibility_seconds: float) -> None:
        self.clock = ManualClock()
        self.stacks = Stacks()
        self.extra_seconds = 0.0
        self.failing = False
        self.watchdog = LoopWatchdog(
            self.stacks,
            self.clock,
            visibility_seconds=visibility_seconds,
            suspects=self._suspects,
            monotonic=lambda: self.clock.now() / 1000 + self.extra_seconds,
        )
        self.watchdog.start()

    def stand_still(self, seconds: float) -> None:
        """Let time pass without a turn of the loop, and then give it one."""
        self.extra_seconds += seconds
        self.clock.advance(5)

    def _suspects(self, seconds: float) -> list[str]:
        if self.failing:
            raise RuntimeError("no")
        return ["resize of job 7"] if seconds > 5 else []


def test_every_beat_puts_the_stacks_off() -> None:
    bench = Bench(visibility_seconds=30)
    with capture_logs() as logs:
        bench.clock.advance(20)
    assert bench.stacks.armed == [10.0] * 11, "at the start, and every two seconds"
    assert logs == []


def test_a_standstill_is_told_with_its_length_and_who_it_was() -> None:
    bench = Bench(visibility_seconds=30)
    lags = sum(telemetry.loop_lag.read().bucket_counts[-1:])
    with capture_logs() as logs:
        bench.stand_still(11)
    assert logs == [
        {"event": "loop.stood_still", "seconds": 13, "handlers": ["resize of job 7"], "log_level": "warning"}
    ]
    assert sum(telemetry.loop_lag.read().bucket_counts[-1:]) == lags + 1


def test_the_shortest_visibility_counts_from_the_moment_it_is_known() -> None:
    bench = Bench(visibility_seconds=300)
    assert bench.stacks.armed == [100.0]
    bench.watchdog.narrow(600)
    bench.watchdog.narrow(3)
    assert bench.stacks.armed == [100.0, 1.0]
    with capture_logs() as logs:
        bench.stand_still(1)
    assert logs[0]["event"] == "loop.stood_still"


def test_a_surprise_in_what_it_asks_is_not_its_last_beat() -> None:
    bench = Bench(visibility_seconds=30)
    bench.failing = True
    with pytest.raises(RuntimeError):
        bench.clock.advance(2)
    bench.failing = False
    armed = len(bench.stacks.armed)
    bench.clock.advance(2)
    assert len(bench.stacks.armed) == armed + 1


def test_it_ends() -> None:
    bench = Bench(visibility_seconds=30)
    bench.watchdog.stop()
    bench.watchdog.stop()
    assert bench.stacks.closed
    assert bench.clock.waiting == 0


def test_a_thread_that_had_the_processor_is_known_by_its_call() -> None:
    threads: BusyThreads[str] = BusyThreads()
    go = threading.Event()

    def work() -> None:
        threads.enter("busy")
        while not go.is_set():
            pass

    working = threading.Thread(target=work)
    threads.enter("idle")
    working.start()
    try:
        used: dict[str, float] = {}
        while used.get("busy", 0) < 0.05:
            for call, seconds in threads.look():
                used[call] = used.get(call, 0) + seconds
    finally:
        go.set()
        working.join(LIMIT_SECONDS)
    # Of a thread that has ended nothing is known any more; a new one may take its number.
    assert [call for call, _ in threads.look() if call != "busy"] == ["idle"]


# Arms twice, each time until the stacks were shown; where nobody can see them, for long enough.
_ARMING = """
import os, sys, time
{before}
from airunner.worker.watchdog import StandardErrorStacks
stacks = StandardErrorStacks()
{after}
def wait_here(seen):
    for _ in range(2):
        size = seen()
        stacks.arm(0.02)
        until = time.monotonic() + (20 if seen() else 0.2)
        while seen() == size and time.monotonic() < until:
            time.sleep(0.001)
wait_here(lambda: {seen})
stacks.close()
print("done", flush=True)
{check}
"""


def arming(*, before: str = "", after: str = "", seen: str = "0", check: str = "", stderr: int) -> str:
    script = _ARMING.format(before=before, after=after, seen=seen, check=check)
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=stderr,
        check=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    return done.stdout


@pytest.fixture
def full_pipe() -> Iterator[int]:
    """A pipe that nobody reads and that takes nothing more."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    yield writer
    os.close(writer)
    os.close(reader)


def test_stacks_are_written_to_standard_error(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w+") as shown:
        shown.write("before\n")
        shown.flush()
        # The last line of a dump: one of which only a part is written is not over.
        dumps = "1 + open('/proc/self/fd/2').read().count('in <module>\\n')"
        assert arming(seen=dumps, stderr=shown.fileno()) == "done\n"
        shown.seek(0)
        text = shown.read()
    assert text.startswith("before\n")
    assert text.count("in wait_here") == 2


def test_nobody_who_reads_standard_error_is_no_reason_to_hang(full_pipe: int) -> None:
    assert arming(stderr=full_pipe) == "done\n"


def test_a_closed_pipe_is_no_reason_to_end() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert arming(stderr=writer) == "done\n"
    finally:
        os.close(writer)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_file_that_takes_the_number_of_standard_error_is_left_alone(moment: str) -> None:
    taken = "os.close(2); taken = os.memfd_create('taken'); assert taken == 2"
    check = "print(os.fstat(2).st_size)"
    if moment == "before":
        # As the interpreter begins without one.
        closed = f"sys.stderr = sys.__stderr__ = None; {taken}"
        printed = arming(before=closed, check=check, stderr=subprocess.DEVNULL)
    else:
        printed = arming(after=taken, check=check, stderr=subprocess.DEVNULL)
    assert printed == "done\n0\n"
