"""Single key presses of somebody at a terminal."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import termios
import tty
from collections import deque
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Key(StrEnum):
    """The keys that mean something."""

    PAUSE = "space"
    BACK = "left"
    FORWARD = "right"
    FASTER = "+"
    SLOWER = "-"
    QUIT = "q"


_KEYS: Final = {
    b" ": Key.PAUSE,
    b"\x1b[D": Key.BACK,
    b"\x1bOD": Key.BACK,
    b"\x1b[C": Key.FORWARD,
    b"\x1bOC": Key.FORWARD,
    b"+": Key.FASTER,
    b"=": Key.FASTER,  # the same key without shift, on many keyboards
    b"-": Key.SLOWER,
    b"q": Key.QUIT,
    b"Q": Key.QUIT,
}
_PRESS: Final = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|\x1b.|.", re.DOTALL)
_UNFINISHED: Final = re.compile(rb"\x1b(?:[\[O][0-9;]*)?\Z")


class KeyDecoder:
    """Turns what a terminal sends into keys, whatever pieces it comes in; what means nothing is dropped."""

    def __init__(self) -> None:
        self._kept = b""

    def feed(self, received: bytes) -> list[Key]:
        """Return the keys that are complete by now."""
        received = self._kept + received
        unfinished = _UNFINISHED.search(received)
        cut = unfinished.start() if unfinished else len(received)
        self._kept = received[cut:]
        return [_KEYS[press] for press in _PRESS.findall(received[:cut]) if press in _KEYS]


class Keyboard(Protocol):
    """Keys that were pressed and not taken yet."""

    def take(self) -> Key | None:
        """Return the first of them and forget it; None if there is none."""

    async def wait(self) -> None:
        """Return once there is one."""


class NoKeyboard:
    """Nobody is there."""

    def take(self) -> Key | None:
        """Nothing is ever pressed."""
        return None

    async def wait(self) -> None:
        """Wait for ever."""
        await asyncio.get_running_loop().create_future()


class TerminalKeyboard:
    """Reads keys from a terminal while the event loop runs."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._decoder = KeyDecoder()
        self._keys: deque[Key] = deque()
        self._pressed = asyncio.Event()

    def take(self) -> Key | None:
        """Return the first key that was not taken yet."""
        if self._keys:
            return self._keys.popleft()
        self._pressed.clear()
        return None

    async def wait(self) -> None:
        """Return once a key was pressed."""
        await self._pressed.wait()

    def read(self) -> None:
        """Take what the terminal has; once it is gone, stop listening."""
        received = b""
        with suppress(OSError):
            received = os.read(self._fd, 1024)
        if not received:
            asyncio.get_running_loop().remove_reader(self._fd)
        self._keys += self._decoder.feed(received)
        if self._keys:
            self._pressed.set()


@contextmanager
def open_keyboard() -> Iterator[Keyboard]:
    """Listen to single keys if there is somebody at a terminal; it is left as it was, whatever happens."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and _in_foreground(sys.stdin.fileno())):
        yield NoKeyboard()
        return
    fd = sys.stdin.fileno()
    loop = asyncio.get_running_loop()
    with _single_keys(fd):
        keyboard = TerminalKeyboard(fd)
        loop.add_reader(fd, keyboard.read)
        try:
            yield keyboard
        finally:
            loop.remove_reader(fd)


def _in_foreground(fd: int) -> bool:
    """Return whether the keys of a terminal are ours; a background process that reads them is stopped."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        # It controls no processes at all.
        return True


@contextmanager
def _single_keys(fd: int) -> Iterator[None]:
    """Switch off line editing and echo; Ctrl-C and the layout of output stay as they are."""
    before = termios.tcgetattr(fd)

    def restore() -> None:
        # A terminal that is gone needs nothing.
        with suppress(termios.error):
            termios.tcsetattr(fd, termios.TCSADRAIN, before)

    def die(number: int, _: FrameType | None) -> None:
        # The default ends the process without any clean-up.
        restore()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    deadly = {number: signal.signal(number, die) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        tty.setcbreak(fd, termios.TCSADRAIN)
        yield
    finally:
        restore()
        for number, handler in deadly.items():
            signal.signal(number, handler)
