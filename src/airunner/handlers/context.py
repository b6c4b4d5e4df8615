"""What a handler knows of its job, and what it can do beside printing."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from operator import index
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

_EMPTY: Final[Mapping[str, str]] = MappingProxyType({})
_MAX_PROGRESS: Final = 2**63 - 1


class OutputSink(Protocol):
    """Takes the output of one handler. Safe to use from any thread."""

    def write(self, text: str, *, is_stderr: bool) -> None:
        """Take output; it shows when its line ends, or with `flush`."""

    def flush(self) -> None:
        """Show the unfinished lines too."""

    def progress(self, done: int, total: int, message: str) -> None:
        """Take how far the handler has come."""

    def room(self) -> Awaitable[None] | None:
        """Return what an async handler awaits before it goes on, while it has written too much; else None."""

    def seal(self) -> None:
        """Take no more: whatever comes from now on goes nowhere, and raises nothing. Idempotent."""


class StopFlag:
    """Whether a handler should end; cheap for the many that never ask. Safe to use from any thread."""

    __slots__ = ("_event", "_raised")

    def __init__(self) -> None:
        self._raised = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        """Return whether it was raised."""
        return self._raised

    def set(self) -> None:
        """Raise it, for good."""
        self._raised = True
        if self._event:
            self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait so long at most, and return whether it was raised."""
        event = self._event = self._event or threading.Event()
        # Raised before anybody could see the event.
        return self._raised or event.wait(seconds)


@dataclass(slots=True, kw_only=True, eq=False)
class Context:
    """One attempt at a job, or one receive of a message, for its handler. Safe to use from any thread."""

    job_id: str
    """The id of the job; of a message, its id."""
    queue: str
    """The queue that the job or the message was taken from."""
    attempt: int
    """The number of this attempt, from 1; of a message, its receive count."""
    request_id: str = ""
    """The id that the sender gave to the request, the same at each try: a key for effects that shall happen
    once."""
    last_try: bool = False
    """Whether an error now is the end: the job has no try left, or its queue delivers the message no more."""
    environment: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """The variables of the job, secret ones included; a message has none."""
    metadata: Mapping[str, str] = field(default_factory=lambda: _EMPTY)
    """What the sender attached to the job or the message."""
    owner: str = ""
    """Whose job it is, as the one who enqueued it wrote; a message has no owner."""
    output: OutputSink = field(repr=False)
    stopped: StopFlag = field(default_factory=StopFlag, repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether the handler should end: the job was cancelled, timed out or taken away."""
        return self.stopped.is_set()

    def log(self, message: object, **fields: object) -> None:
        """Write a line to the job's output, the fields behind it as key=value."""
        parts = [str(message), *(f"{name}={value}" for name, value in fields.items())]
        self.output.write(" ".join(parts) + "\n", is_stderr=False)

    def progress(self, done: int, total: int, message: str = "") -> None:
        """Report how far the work has come; a newer report replaces one that was not sent yet.

        TypeError for what are no whole numbers and no text: nobody could send that.
        """
        if not isinstance(message, str):
            raise TypeError(f"the message of a progress must be a text, not {type(message).__name__}")
        done, total = int(index(done)), int(index(total))
        if not 0 <= done <= total <= _MAX_PROGRESS:
            raise ValueError(f"progress must be between 0 and its total, not {done} of {total}")
        self.output.progress(done, total, message.encode(errors="replace").decode())

    def wait(self, seconds: float) -> bool:
        """Sleep in a thread, but no longer than until cancelled; return whether that is so."""
        return self.stopped.wait(seconds)
