"""The real command line, as processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airunner.client import Client
from airunner.domain.job import JobParams

LIMIT_SECONDS = 60.0
AIRUNNER = (sys.executable, "-m", "airunner.cli")


def environment(**more: str) -> dict[str, str]:
    """Return what processes inherit: nothing that configures airunner but what the test says."""
    kept = {
        name: value
        for name, value in os.environ.items()
        # The last are how `make coverage` reaches processes.
        if name in {"PATH", "HOME", "LANG"} or name.startswith("COVERAGE_")
    }
    return {**kept, **more}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A person in a folder, with some variables set."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end."""
        return self.run_reading(subprocess.DEVNULL, *arguments, **variables)

    def run_reading(
        self, stdin: int, *arguments: str | Path, **variables: str
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end, with a descriptor as its standard input."""
        return subprocess.run(
            [*AIRUNNER, *map(str, arguments)],
            cwd=self.folder,
            env=environment(**{**self.variables, **variables}),
            stdin=stdin,
            capture_output=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    def text(self, *arguments: str | Path) -> str:
        """Run a command that must succeed; return its standard output."""
        done = self.run(*arguments)
        assert done.returncode == 0, (done.returncode, done.stderr.decode())
        return done.stdout.decode().strip()

    def objects(self, *arguments: str | Path) -> list[dict[str, Any]]:
        """Run a command that must succeed; return the objects of its JSON lines."""
        found = [json.loads(line) for line in self.text(*arguments, "--json").splitlines()]
        assert all(entry["v"] == 1 for entry in found)
        return found

    def enqueue(self, command: str, *arguments: str) -> str:
        """Submit a job without the time that a command takes to start; return its id."""
        with Client(self.variables["AIRUNNER_SERVER"]) as client:
            return client.enqueue(JobParams(command=command, args=arguments)).job_id

    def finish(self, command: str, *arguments: str) -> str:
        """Submit a job in the same way, and return its id once it has ended."""
        job_id = self.enqueue(command, *arguments)
        with Client(self.variables["AIRUNNER_SERVER"]) as client:
            assert client.get_job(job_id, wait_seconds=60).state.terminal
        return job_id

    @contextmanager
    def start(self, *arguments: str | Path, **variables: str) -> Iterator[Started]:
        """Start a command; it is killed at the end if it still runs."""
        directory = self.folder / f"started-{time.monotonic_ns()}"
        directory.mkdir()
        with (directory / "out").open("wb") as out, (directory / "err").open("wb") as err:
            process = subprocess.Popen(
                [*AIRUNNER, *map(str, arguments)],
                cwd=self.folder,
                env=environment(**{**self.variables, **variables}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        try:
            yield Started(process=process, directory=directory)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A command that runs."""

    process: subprocess.Popen[bytes]
    directory: Path

    @property
    def out(self) -> bytes:
        return (self.directory / "out").read_bytes()

    @property
    def err(self) -> str:
        return (self.directory / "err").read_text()

    def wait_for(self, text: str) -> str:
        """Wait for a line on standard error that begins like this; return the rest of it."""

        def printed() -> list[str]:
            # The last piece may be a line that is still being written.
            return [line for line in self.err.split("\n")[:-1] if line.startswith(text)]

        def said_or_ended() -> bool:
            return bool(printed()) or self.process.poll() is not None

        eventually(said_or_ended, f"{text!r} is said")
        assert printed(), f"ended without {text!r}: {self.err}"
        return printed()[0].removeprefix(text).strip()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end; return the exit code."""
        return self.process.wait(LIMIT_SECONDS)


def eventually(condition: Callable[[], bool], what: str, limit_seconds: float = LIMIT_SECONDS) -> None:
    """Wait until the condition holds."""
    give_up_at = time.monotonic() + limit_seconds
    while not condition():
        assert time.monotonic() < give_up_at, f"waited in vain until {what}"
        time.sleep(0.02)


@contextmanager
def serving(person: CommandLine, *options: str | Path, store: str = "data") -> Iterator[tuple[Started, str]]:
    """A server on loopback; yields it and its URL."""
    where = ("--listen", "127.0.0.1:0", "--data-dir", store)
    with person.start("server", *where, *options) as server:
        yield server, server.wait_for("airunner server listening on")


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that nobody has reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
