"""What the events of a job tell of each of its attempts, and the phrases for it."""

from __future__ import annotations

import signal
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airunner.domain.event import Event, ProcessEnd, ProcessError, ProcessStart, signal_name
from airunner.reading.instants import to_iso

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.job import Job

_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSummary:
    """What the events tell of one attempt."""

    number: int
    worker: str = ""
    start: Event | None = None
    end: Event | None = None
    errors: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()

    @property
    def how_it_ended(self) -> str:
        """How the attempt ended, by its error or its exit code; empty if it has no end."""
        if self.end is None or not isinstance(self.end.data, ProcessEnd):
            return ""
        code = self.end.data.exit_code
        if self.errors:
            return f"{'; '.join(map(last_line, self.errors))} (exit code {code})"
        if code - 128 in signal.valid_signals():
            return f"killed by {signal_name(code - 128)} (exit code {code})"
        return f"exit code {code}"


def summarise_attempts(job: Job, events: Sequence[Event]) -> list[AttemptSummary]:
    """Return a summary of each attempt, those without any event included."""
    by_attempt: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        by_attempt[event.attempt].append(event)
    return [_summary(job, number, by_attempt[number]) for number in range(1, job.attempt + 1)]


def last_line(message: str) -> str:
    """Return the line of an error that names it, which is the last one of a traceback."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return lines[-1][:_SHOWN_CHARACTERS] if lines else ""


def counted(number: int, one: str, many: str) -> str:
    """Return a number of things with the right one of the two nouns."""
    return f"{number:,} {one if number == 1 else many}"


def by_whom(principal: str, at: int) -> str:
    """Return who did something and when, to be put after what was done; empty if nobody is known."""
    return f" by {principal} at {to_iso(at)}" if principal else ""


def _summary(job: Job, number: int, events: list[Event]) -> AttemptSummary:
    start = next((event for event in events if isinstance(event.data, ProcessStart)), None)
    named = start.data.worker_id if start and isinstance(start.data, ProcessStart) else ""
    return AttemptSummary(
        number=number,
        # The job names the worker of its last attempt only.
        worker=named or (job.life.worker_id if number == job.attempt else ""),
        start=start,
        end=next((event for event in events if isinstance(event.data, ProcessEnd)), None),
        errors=tuple(event.data.error_message for event in events if isinstance(event.data, ProcessError)),
        events=tuple(events),
    )
