"""What can go wrong around a running server, for real where that is possible, from a moment to another.

A fault starts the server in a place where it can happen, again after a shutdown too.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import resource
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.request import urlopen

import pytest

from airunner.testing.conditions import until
from tests.crash.start_up_hook.sitecustomize import FAULTS
from tests.support.processes import LIMIT_SECONDS, RunningProcess, Stack

_HOOK = Path(__file__).with_name("start_up_hook")
_HOLDER = 'mount -t tmpfs -o size="$1" none "$2" && echo mounted && read -r _'
_LOG_INTO = 'exec "$@" 2>>"$LOG_FILE"'
_LOOK_AGAIN_SECONDS = 0.02
_PAGE_BYTES = 4096
_HOUR_MS = 3_600_000
_A_MOMENT_SECONDS = 0.7


class Fault(Protocol):
    """One way in which the surroundings of a server fail.

    Where it `bites`, no write can succeed once what is left has been used up.
    """

    name: str
    bites: bool
    drops_logs: bool

    async def start(self, stack: Stack) -> None:
        """Start the server where this can happen, for the first time or again."""

    def begin(self) -> None:
        """Let it happen."""

    async def end(self) -> None:
        """Let all be well again."""

    def close(self) -> None:
        """Leave nothing behind."""

    def log_goes_on(self) -> bool:
        """Return whether the server has said anything since the fault ended, where anybody can hear it."""

    def database(self, stack: Stack) -> Path:
        """Return where this process finds the server's database."""


class Nothing:
    """What faults have in common: a server as usual."""

    name = "nothing"
    bites = False
    drops_logs = False
    through: Sequence[str] = ()

    def __init__(self) -> None:
        self._server: RunningProcess | None = None

    @property
    def server(self) -> RunningProcess:
        assert self._server
        return self._server

    async def start(self, stack: Stack) -> None:
        self._server = stack.server = stack.launch_server(through=self.through)
        async with asyncio.timeout(LIMIT_SECONDS):
            while not _serves(stack):
                assert self.server.exit_code is None, stack.printed()
                # Asked without a pause, it would have less time to start.
                await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def begin(self) -> None:
        pass

    async def end(self) -> None:
        pass

    def close(self) -> None:
        pass

    def log_goes_on(self) -> bool:
        return True

    def database(self, stack: Stack) -> Path:
        return stack.database


class FullDisk(Nothing):
    """A small file system of its own, in a namespace that outlives the server, with a file that fills it."""

    name = "full disk"
    bites = True
    log_on_it = False

    def __init__(self) -> None:
        super().__init__()
        self._holder: subprocess.Popen[bytes] | None = None
        self._disk = Path()

    async def start(self, stack: Stack) -> None:
        if self._holder is None:
            self._mount(stack)
        await super().start(stack)

    def begin(self) -> None:
        with self._ballast.open("wb", 0) as file, suppress(OSError):
            while file.write(bytes(_PAGE_BYTES)):
                pass

    async def end(self) -> None:
        self._ballast.unlink()

    def close(self) -> None:
        if self._holder:
            self._holder.kill()
            self._holder.communicate()

    def database(self, stack: Stack) -> Path:
        return self._disk / stack.database.name

    @property
    def _log(self) -> Path:
        return self._disk / "server.log"

    @property
    def _ballast(self) -> Path:
        return self._disk / "ballast"

    def _mount(self, stack: Stack) -> None:
        stack.data_dir.mkdir()
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", _HOLDER, "sh", "12m"]
        self._holder = subprocess.Popen(
            [*command, str(stack.data_dir)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout
        if self._holder.stdout.readline() != b"mounted\n":
            self.close()
            pytest.skip("this machine does not let us mount")
        pid = str(self._holder.pid)
        self._disk = Path(f"/proc/{pid}/root") / stack.data_dir.relative_to("/")
        self.through = ("nsenter", "--target", pid, "--user", "--mount", "--preserve-credentials")
        if self.log_on_it:
            log = f"LOG_FILE={stack.data_dir / 'server.log'}"
            self.through = (*self.through, "env", log, "sh", "-c", _LOG_INTO, "sh")


class FullDiskWithTheLogOnIt(FullDisk):
    name = "full disk with the log on it"
    log_on_it = True
    drops_logs = True
    _log_size = 0

    def begin(self) -> None:
        super().begin()
        # What the log has of its last page is room, too.
        with self._log.open("ab") as log:
            log.write(b"\n" * (-log.tell() % _PAGE_BYTES))

    async def end(self) -> None:
        self._log_size = self._log.stat().st_size
        await super().end()

    def log_goes_on(self) -> bool:
        return self._log.stat().st_size > self._log_size


class FilesThatMayNotGrow(Nothing):
    """The nearest thing to a full disk that needs no rights: no file grows beyond a mebibyte."""

    name = "files that may not grow"
    bites = True

    def begin(self) -> None:
        self._limit(1024 * 1024)

    async def end(self) -> None:
        if self.server.exit_code is None:
            self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        resource.prlimit(self.server.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


class Hooked(Nothing):
    """A server that was fooled from its start; see start_up_hook."""

    def __init__(self) -> None:
        super().__init__()
        self._shared: mmap.mmap | None = None

    async def start(self, stack: Stack) -> None:
        file = stack.folder / "faults"
        if self._shared is None:
            file.write_bytes(FAULTS.pack(0, 0))
            with file.open("r+b") as opened:
                self._shared = mmap.mmap(opened.fileno(), FAULTS.size)
            stack.environment |= {"PYTHONPATH": str(_HOOK), "FAULTS_FILE": str(file)}
        await super().start(stack)

    async def end(self) -> None:
        self.set()

    def set(self, *, clock_ms: int = 0, disk_fails: bool = False) -> None:
        assert self._shared
        FAULTS.pack_into(self._shared, 0, clock_ms, disk_fails)

    def close(self) -> None:
        if self._shared:
            self._shared.close()


class IoError(Hooked):
    name = "I/O error"
    bites = True

    def begin(self) -> None:
        self.set(disk_fails=True)


class ClockAhead(Hooked):
    name = "clock steps: an hour ahead, and back"

    def begin(self) -> None:
        self.set(clock_ms=_HOUR_MS)


class ClockBehind(Hooked):
    name = "clock steps: an hour back, and ahead again"

    def begin(self) -> None:
        self.set(clock_ms=-_HOUR_MS)


class FileLockedForAMoment(Nothing):
    """Another process writes, for less than a write waits for its turn."""

    name = "locked file, for a moment"

    def __init__(self) -> None:
        super().__init__()
        self._path = Path()
        self._lock: sqlite3.Connection | None = None
        self._alarm: asyncio.TimerHandle | None = None

    async def start(self, stack: Stack) -> None:
        await super().start(stack)
        self._path = stack.database

    def begin(self) -> None:
        self._take()
        self._alarm = asyncio.get_running_loop().call_later(_A_MOMENT_SECONDS, self._let_go)

    async def end(self) -> None:
        await until(lambda: self._lock is None, limit_seconds=LIMIT_SECONDS)

    def close(self) -> None:
        if self._alarm:
            self._alarm.cancel()
        self._let_go()

    def _take(self) -> None:
        self._lock = sqlite3.connect(self._path, isolation_level=None, timeout=LIMIT_SECONDS)
        self._lock.execute("BEGIN IMMEDIATE")

    def _let_go(self) -> None:
        if self._lock:
            self._lock.close()
        self._lock = None


class LockedFile(FileLockedForAMoment):
    """Another process writes, for longer than any write waits."""

    name = "locked file"

    def begin(self) -> None:
        self._take()

    async def end(self) -> None:
        self._let_go()


class ClosedStderr(Nothing):
    """Whoever read what the server says is gone for good."""

    name = "closed stderr"
    drops_logs = True

    async def start(self, stack: Stack) -> None:
        pipe = stack.folder / "stderr"
        if not pipe.exists():
            os.mkfifo(pipe)
        self.through = ("env", f"LOG_FILE={pipe}", "sh", "-c", _LOG_INTO, "sh")
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        try:
            await super().start(stack)
        finally:
            os.close(reader)


class Emfile(Nothing):
    """The server may open nothing more, files and connections alike."""

    name = "EMFILE"

    def __init__(self) -> None:
        super().__init__()
        self._before = (0, 0)

    def begin(self) -> None:
        opened = {int(entry.name) for entry in Path(f"/proc/{self.server.pid}/fd").iterdir()}
        lowest = next(number for number in range(len(opened) + 1) if number not in opened)
        self._before = resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE, (lowest, self._before[1]))

    async def end(self) -> None:
        if self.server.exit_code is None:
            resource.prlimit(self.server.pid, resource.RLIMIT_NOFILE, self._before)


def _serves(stack: Stack) -> bool:
    with suppress(OSError), urlopen(f"{stack.url}/healthz", timeout=LIMIT_SECONDS) as answer:  # noqa: S310  our own server
        return bool(answer.status == 200)
    return False
