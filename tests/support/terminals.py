"""Commands at a terminal of their own, with somebody at the keys."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 60.0


class Terminal:
    """A command whose standard streams are one terminal."""

    def __init__(self, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self._ours, self._theirs = os.openpty()
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
        self.settings_before = self.settings
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            start_new_session=True,
        )
        self.screen = ""

    @property
    def settings(self) -> list[Any]:
        """How the terminal treats what is typed and printed."""
        return termios.tcgetattr(self._theirs)

    def type(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def until_shown(self, text: str, *, times: int = 1) -> None:
        """Wait until a text was shown so many times since the start."""
        give_up_at = time.monotonic() + LIMIT_SECONDS
        while self.screen.count(text) < times:
            assert time.monotonic() < give_up_at, f"waited in vain for {text!r}: {self.screen}"
            alive = self.process.poll() is None
            assert self._read() or alive, f"ended without {text!r}: {self.screen}"

    def ended(self) -> int:
        """Wait for the end, reading what is shown; return the exit code."""
        give_up_at = time.monotonic() + LIMIT_SECONDS
        while self.process.poll() is None:
            assert time.monotonic() < give_up_at, f"never ended: {self.screen}"
            self._read()
        while self._read(0):
            pass
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)

    def _read(self, seconds: float = 0.05) -> bool:
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        self.screen += os.read(self._ours, 65_536).decode(errors="replace").replace("\r\n", "\n")
        return True


@contextmanager
def terminal(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], **variables: str
) -> Iterator[Terminal]:
    """Give a command at a terminal; it is killed at the end if it still runs."""
    opened = Terminal(command, folder, {**environment, "TERM": "xterm-256color", **variables})
    try:
        yield opened
    finally:
        opened.close()
