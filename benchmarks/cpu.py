"""CPU time of processes: what all that take part in something spend together.

On a machine that does other things too, wall time tells about the others; CPU time much less so.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Final

# How Linux names the clock of another process: its id, inverted, above the kind of the clock.
_KIND_BITS: Final = 3
_SCHEDULED_TIME: Final = 2


class CpuMeter:
    """What processes spend from its making on, each under its name.

    Counted are all threads, those that have ended too, but not the children of a process. All processes must
    still be there when `spent` is asked.
    """

    def __init__(self, processes: Mapping[str, int]) -> None:
        """Begin; `processes` are their ids by name."""
        self._processes = dict(processes)
        self._before = self._now()

    def spent(self) -> dict[str, float]:
        """Return the CPU seconds of each since the beginning."""
        now = self._now()
        return {name: now[name] - before for name, before in self._before.items()}

    def _now(self) -> dict[str, float]:
        return {name: cpu_seconds(pid) for name, pid in self._processes.items()}


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds that a process has spent so far, in user and system mode."""
    return time.clock_gettime((~pid << _KIND_BITS) | _SCHEDULED_TIME)


def cpu_of_command(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Run a command, silently; return the CPU seconds of it and of the children that it waited for."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_utime + usage.ru_stime
