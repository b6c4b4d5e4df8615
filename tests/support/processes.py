"""Real servers and workers as processes: started, killed in every way, and waited for."""

from __future__ import annotations

import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO

from airunner.client import AsyncClient
from airunner.testing.conditions import until

LIMIT_SECONDS = 60.0
COMMAND = (sys.executable, "-m", "airunner.cli")
# Ports from here on are not handed out to outgoing connections, so nobody takes one while its server is down.
_PORTS = range(20_000, 30_000)


class RunningProcess:
    """A command of ours; what it says on standard error is kept in `log`."""

    def __init__(
        self,
        *args: str,
        log: Path,
        environment: Mapping[str, str] | None = None,
        through: Sequence[str] = (),
        command: Sequence[str] = COMMAND,
    ) -> None:
        """Start it, `through` another command if one is given; `command` is a program that is not ours."""
        self.log = log
        with _append(log) as errors:
            self._seen = errors.tell()
            self._process = subprocess.Popen(
                [*through, *command, *args],
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env={**clean_environment(), **(environment or {})},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""
        return self._process.poll()

    def printed(self) -> str:
        """What it has said since it was started."""
        with self.log.open("rb") as file:
            file.seek(self._seen)
            return file.read().decode(errors="replace")

    async def until_said(self, text: str) -> None:
        await until(lambda: text in self.printed() or self.exit_code is not None, limit_seconds=LIMIT_SECONDS)
        assert text in self.printed(), f"exit code {self.exit_code}: {self.printed()}"

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def ended(self, limit_seconds: float = LIMIT_SECONDS) -> int:
        """Return its exit code once it has ended."""
        await until(lambda: self.exit_code is not None, limit_seconds=limit_seconds)
        return self._process.returncode

    async def kill(self) -> None:
        """Kill it with SIGKILL, and see it gone."""
        self.send(signal.SIGKILL)
        await self.ended()

    def abandon(self) -> None:
        """End it in any case, also when it is stopped."""
        if self.exit_code is None:
            self.send(signal.SIGKILL)
        self._process.wait()


class Stack:
    """One server address and data folder, and whatever processes a test starts around them."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.data_dir = folder / "data"
        self.database = self.data_dir / "airunner.db"
        self.port = unused_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environment = {"TMPDIR": str(folder), **(environment or {})}
        self._processes: list[RunningProcess] = []
        self.server: RunningProcess | None = None

    async def start_server(self, *options: str, through: Sequence[str] = ()) -> RunningProcess:
        """Start the server, for the first time or again, and return once it serves."""
        self.server = self.launch_server(*options, through=through)
        await self.server.until_said("listening on")
        return self.server

    def launch_server(
        self, *options: str, port: int | None = None, through: Sequence[str] = ()
    ) -> RunningProcess:
        """Start a server on the folder and leave it to itself."""
        listen = f"127.0.0.1:{port or self.port}"
        asked = ("server", "--listen", listen, "--data-dir", str(self.data_dir), "--no-auth", *options)
        return self._launch(*asked, through=through)

    async def kill_server(self) -> None:
        assert self.server
        await self.server.kill()

    async def start_worker(self, name: str, *options: str) -> RunningProcess:
        """Start a worker and return once it takes jobs."""
        worker = self._launch("worker", "--server", self.url, "--worker-id", name, *options, name=name)
        await worker.until_said("serves")
        return worker

    def client(self) -> AsyncClient:
        return AsyncClient(self.url, timeout_seconds=LIMIT_SECONDS)

    def printed(self) -> str:
        """Everything that all processes said, for a test that failed."""
        return "\n".join(f"--- {file.name}\n{file.read_text(errors='replace')}" for file in self._logs())

    def close(self) -> None:
        for process in self._processes:
            process.abandon()

    def _logs(self) -> list[Path]:
        return sorted({process.log for process in self._processes})

    def _launch(
        self, *args: str, name: str = "server", through: Sequence[str] = (), **variables: str
    ) -> RunningProcess:
        log = self.folder / f"{name}.log"
        environment = {**self.environment, **variables}
        process = RunningProcess(*args, log=log, environment=environment, through=through)
        self._processes.append(process)
        return process


@asynccontextmanager
async def running_stack(folder: Path, environment: Mapping[str, str] | None = None) -> AsyncIterator[Stack]:
    """Give a stack with nothing started yet; everything it started is gone afterwards."""
    stack = Stack(folder, environment)
    try:
        yield stack
    except BaseException:
        print(stack.printed())  # noqa: T201  pytest shows it with the failure
        raise
    finally:
        stack.close()


def unused_port() -> int:
    """Return a port of loopback at which nobody listens."""
    while True:
        port = random.choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


async def until_gone(pid: int, limit_seconds: float = LIMIT_SECONDS) -> None:
    """Return once a process has exited, whoever's child it is; one that nobody has reaped counts as gone."""
    await until(lambda: _state(pid) in {"", "Z", "X"}, limit_seconds=limit_seconds)


def lives(pid: int) -> bool:
    return _state(pid) not in {"", "Z", "X"}


def integrity(database: Path) -> str:
    """Return what SQLite says about a database that nobody uses: "ok" if nothing is wrong with it."""
    connection = sqlite3.connect(database)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_resident_bytes(pid: int) -> int:
    """Return the most that a process ever had in memory."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in line)
    return int(line.split()[1]) * 1024


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _append(log: Path) -> IO[bytes]:
    file = log.open("ab")
    file.seek(0, os.SEEK_END)
    return file


def clean_environment() -> dict[str, str]:
    """The environment without settings that would reach our commands."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AIRUNNER_")}
