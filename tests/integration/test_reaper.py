"""The process that cleans up after a worker: real processes, in groups and sessions of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airunner.testing.conditions import until
from airunner.worker.process.reaper import OrphanReaper

# A worker in small: it starts what a job would, tells its processes, and waits to be killed.
WORKER = """
import os, subprocess, sys, time
from airunner.worker.process.reaper import OrphanReaper
reaper = OrphanReaper()
reaper.ensure()
shell = "sleep 777 & echo $!; setsid sh -c 'echo $$; exec sleep 778' & wait"
subprocess.Popen(["sh", "-c", shell], env={"PATH": os.environ["PATH"], **reaper.environment},
                 start_new_session=True)
time.sleep(600)
"""


@pytest.fixture
def reaper() -> Iterator[OrphanReaper]:
    reaper = OrphanReaper()
    yield reaper
    reaper.close()


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_killed_worker_takes_all_descendants_of_its_jobs_along() -> None:
    worker = subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE)
    assert worker.stdout
    descendants = [int(worker.stdout.readline()) for _ in range(2)]
    assert all(map(lives, descendants))
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    await until(lambda: not any(map(lives, descendants)))
    worker.stdout.close()


async def test_an_orderly_end_leaves_nothing_behind(reaper: OrphanReaper) -> None:
    reaper.ensure()
    left = subprocess.Popen(
        ["sleep", "779"], env={**os.environ, **reaper.environment}, start_new_session=True
    )
    stranger = subprocess.Popen(["sleep", "780"], start_new_session=True)
    reaper.close()
    assert left.wait() == -signal.SIGKILL
    assert lives(stranger.pid)
    stranger.kill()
    stranger.wait()


async def test_a_reaper_that_dies_is_started_again(reaper: OrphanReaper) -> None:
    reaper.ensure()
    first = reaper._program
    assert first
    first.kill()
    first.wait()
    reaper.ensure()
    assert reaper._program
    assert reaper._program.pid != first.pid


async def test_signals_to_the_group_do_not_end_it(reaper: OrphanReaper) -> None:
    reaper.ensure()
    program = reaper._program
    assert program
    await until(lambda: b"reap.py" in Path(f"/proc/{program.pid}/cmdline").read_bytes())
    ignored = f"/proc/{program.pid}/status"
    await until(lambda: int(Path(ignored).read_text().split("SigIgn:")[1].split()[0], 16) & (1 << 14) != 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        program.send_signal(number)
    assert program.poll() is None
