"""What a handler knows of its job, and what it can say beside printing."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class OutputSink(Protocol):
    """Where the words of a handler go: the events of its job. Safe to use from any thread."""

    def write(self, text: str, *, is_stderr: bool) -> None:
        """Take output; it shows when its line ends, or with `flush`."""

    def flush(self) -> None:
        """Show the unfinished lines too."""

    def progress(self, done: int, total: int, message: str) -> None:
        """Say how far the handler has come."""


class StopFlag:
    """Whether a handler should end; cheap for the many that never ask. Safe to use from any thread."""

    __slots__ = ("_event", "_raised")

    def __init__(self) -> None:
        self._raised = False
        self._event: threading.Event | None = None

    def is_set(self) -> bool:
        """Tell whether it was raised."""
        return self._raised

    def set(self) -> None:
        """Raise it, for good."""
        self._raised = True
        if self._event:
            self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; tell whether it was raised."""
        event = self._event = self._event or threading.Event()
        # Raised before anybody could see the event.
        return self._raised or event.wait(seconds)


@dataclass(slots=True, kw_only=True, eq=False)
class Context:
    """One attempt at a job, as its handler sees it. Safe to use from any thread."""

    job_id: str
    queue: str
    attempt: int
    environment: Mapping[str, str]
    """The variables of the job, secret ones included."""
    metadata: Mapping[str, str]
    owner: str = ""
    output: OutputSink = field(repr=False)
    stopped: StopFlag = field(default_factory=StopFlag, repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether the handler should end: the job was cancelled, timed out or taken away."""
        return self.stopped.is_set()

    def log(self, message: object, **fields: object) -> None:
        """Write a line to the job's output, the fields behind it as key=value."""
        words = [str(message), *(f"{name}={value}" for name, value in fields.items())]
        self.output.write(" ".join(words) + "\n", is_stderr=False)

    def progress(self, done: int, total: int, message: str = "") -> None:
        """Say how far the work has come; the newest word replaces one that was not sent yet."""
        if not 0 <= done <= total:
            raise ValueError(f"progress must be between 0 and its total, not {done} of {total}")
        self.output.progress(done, total, message)

    def wait(self, seconds: float) -> bool:
        """Sleep in a thread, but no longer than until cancelled; return whether that is so."""
        return self.stopped.wait(seconds)
