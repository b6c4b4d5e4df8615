"""One small process beside a worker, which outlives it and kills what its jobs left behind.

A parent-death signal reaches the leader of a job's processes, not those that it started. So every process
of a job inherits a mark in its environment, and the reaper looks for it when the worker is gone, however it
went.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = get_logger("airunner.worker")

MARK_VARIABLE: Final = "AIRUNNER_WORKER_MARK"
_PROGRAM: Final = Path(__file__).with_name("reap.py")
_END_SECONDS: Final = 15.0


class OrphanReaper:
    """Started with the first process of a job, and again should it die; ends after the worker.

    Without a reaper jobs run all the same: only a killed worker may then leave processes behind.
    """

    def __init__(self) -> None:
        self._value = secrets.token_hex(16)
        self._program: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    @property
    def environment(self) -> Mapping[str, str]:
        """The mark, for the environment of every process of a job."""
        return {MARK_VARIABLE: self._value}

    def ensure(self) -> None:
        """See to it that the program runs."""
        if self._program is None or self._program.poll() is not None:
            self._let_go()
            try:
                self._start()
            except OSError as error:
                _log.warning("reaper.failed", error=error.strerror)

    def close(self) -> None:
        """Let the program sweep and end. Blocks for as long as that takes, within limits."""
        program, self._program = self._program, None
        self._let_go()
        if program:
            try:
                program.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                _log.warning("reaper.hangs", pid=program.pid)

    def _start(self) -> None:
        read, self._pipe = os.pipe()
        try:
            self._program = subprocess.Popen(  # noqa: S603  our own program
                (sys.executable, "-I", "-S", _PROGRAM, str(read), f"{MARK_VARIABLE}={self._value}"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(read,),
                start_new_session=True,
                env={},
                cwd="/",
            )
        finally:
            os.close(read)

    def _let_go(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
