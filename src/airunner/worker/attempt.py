"""One attempt at a job in this worker's hands, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airunner.domain.event import Event
from airunner.domain.job import Job, JobResult

if TYPE_CHECKING:
    from airunner.handlers.calls import HandlerCall


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt:
    """What was dequeued, and what those who work on it let each other know."""

    job: Job
    task_token: str
    call: HandlerCall | None = field(default=None, repr=False)
    """The call of its handler, if it has one that was begun."""
    begun: bool = False
    """Whether anything happened that may have had an effect: then giving it back costs a try."""
    last_events: Sequence[Event] = ()
    """Events that nobody published yet and that belong to the attempt's end, if it is given back."""
    watched: bool = False
    """Whether somebody looks at the job, as the server said last; change it with `set_watched`."""
    on_watched: Callable[[], None] | None = field(default=None, repr=False)

    def set_watched(self, watched: bool) -> None:
        """Take note of what the server said, and tell the one who wants to know."""
        changed = watched != self.watched
        self.watched = watched
        if changed and self.on_watched:
            self.on_watched()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The end of an attempt: its result, and the last events, which become visible together with it."""

    result: JobResult
    events: Sequence[Event] = ()
