"""Commands of ours as processes that begin at once: forked from one that has imported everything already.

They are real processes, to be killed by the dozen: starting an interpreter for each would take a second.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from airunner.testing.conditions import until
from tests.support.processes import clean_environment

LIMIT_SECONDS = 60.0
_PR_SET_PDEATHSIG = 1
_IMPORTED = (
    *(
        "airunner.app.server",
        "airunner.cli.main",
        "airunner.cli.commands.generation",
        "airunner.cli.commands.outbox",
    ),
    *(
        "airunner.generation.start",
        "airunner.outbox.start",
        "airunner.outbox.sqs_sink",
        "airunner.queues.sqs",
    ),
    *("airunner.handlers.loading", "airunner.telemetry.export", "airunner.postgres.listening"),
    *("airunner.aws.calls", "aiobotocore.session", "aiobotocore.httpsession", "uvloop", "asyncpg"),
)


class ForkServer:
    """Starts commands until it is closed, by forks of a process without threads."""

    @functools.cached_property
    def _process(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.forking"],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_environment(),
        )

    def start(self, *args: str, log: Path, environment: Mapping[str, str]) -> ForkedProcess:
        """Start a command with nothing but these variables; what it says goes to the end of `log`."""
        assert self._process.stdin
        assert self._process.stdout
        request = {"args": args, "log": str(log), "environment": {**clean_environment(), **environment}}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return ForkedProcess(int(self._process.stdout.readline()))

    def close(self) -> None:
        """End it, if it was ever needed, and with it all that it started."""
        if "_process" in self.__dict__:
            self._process.communicate()


class ForkedProcess:
    """A command that was started by a fork."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    async def kill(self) -> None:
        """Kill it with SIGKILL, and see it gone."""
        self.abandon()
        await until(lambda: not Path(f"/proc/{self.pid}").exists(), limit_seconds=LIMIT_SECONDS)

    def abandon(self) -> None:
        """End it in any case."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def main() -> None:
    """Fork a process for each line of the standard input, and say its number."""
    for name in _IMPORTED:
        importlib.import_module(name)
    # Nobody waits for them: they are gone when they end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _become(json.loads(line))
        os.write(1, f"{pid}\n".encode())


def _become(request: dict[str, object]) -> None:
    """Be the command, and end with it."""
    from airunner.cli.main import execute

    # It ends with who started it, also where a test is killed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = os.open(str(request["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor, file in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(file, descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    os._exit(execute(list(request["args"])))  # type: ignore[call-overload]


if __name__ == "__main__":
    main()
