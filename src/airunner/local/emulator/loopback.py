"""A server program on loopback that says its port when it listens, and ends when its standard input does."""

from __future__ import annotations

import select
import subprocess
from typing import IO, TYPE_CHECKING, Final, Self, cast

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_STOP_SECONDS: Final = 10


class EmulatorFailed(Exception):
    """What an emulator needs is not installed, or it did not come up; the text says which."""


class LoopbackProcess:
    """One such program. It ends with this process, however that ends: its input is closed then.

    The parent-death signal would come with the end of the thread that called `start`.
    """

    def __init__(self, name: str, *, start_seconds: float = 60) -> None:
        self._name = name
        self._start_seconds = start_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """The endpoint; of the last start, if it does not run."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """The id of the process; raises EmulatorFailed if it does not run."""
        if self._process is None:
            raise EmulatorFailed(f"{self._name} does not run")
        return self._process.pid

    def command(self) -> Sequence[str]:
        """Return what to start; raises EmulatorFailed if that is not installed."""
        raise NotImplementedError

    def start(self) -> Self:
        """Start the process and return once it listens; blocks. Raises EmulatorFailed."""
        self._process = subprocess.Popen(  # noqa: S603 - programs of our own
            self.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for who started it, and may still need it
        )
        try:
            self._port = int(self._first_line(cast("IO[bytes]", self._process.stdout)))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End the process and wait for it; nothing if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.communicate(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _first_line(self, stdout: IO[bytes]) -> bytes:
        if not select.select([stdout], [], [], self._start_seconds)[0]:
            raise EmulatorFailed(f"{self._name} did not come up within {self._start_seconds:g} s")
        if not (line := stdout.readline()):
            raise EmulatorFailed(f"{self._name} ended before it came up; its error is above")
        return line
