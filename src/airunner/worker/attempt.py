"""One attempt at a job in this worker's hands, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from airunner.domain.event import Event
from airunner.domain.job import SECRET_MASK, Job, JobResult
from airunner.domain.repository import masked_url
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.handlers.calls import HandlerCall
    from airunner.queues.base import Delivery
    from airunner.worker.handlers.output import JobOutput

    AttemptCall: TypeAlias = HandlerCall[Delivery["Attempt"], JobOutput]
    """The call of the handler of an attempt."""

_log = get_logger("airunner.worker")

REFUSED_TOKEN_SECONDS: Final = 60.0
"""After so long of nothing but refusals of its task token an attempt is lost, if nothing else is set."""


class TokenRefusals:
    """Since when the server refuses the task token of an attempt, in heartbeats and publishes together.

    One refusal costs nothing: while keys change, another server takes what this one refuses. An attempt whose
    token every answer refused for `limit_seconds` is lost. A call without an answer says nothing about it.
    """

    __slots__ = ("_limit_ms", "_since", "lost")

    def __init__(self, limit_seconds: float = REFUSED_TOKEN_SECONDS) -> None:
        self._limit_ms = round(1000 * limit_seconds)
        self._since: int | None = None
        self.lost = False
        """Whether the attempt is lost."""

    def refused(self, now: int) -> bool:
        """Take note of an answer that refused the token; return whether the attempt is lost.

        `now` is of the monotonic clock: a step of the other one costs no attempt.
        """
        if self._since is None:
            self._since = now
        self.lost = self.lost or now - self._since >= self._limit_ms
        return self.lost

    def accepted(self) -> None:
        """Take note of an answer that took the token."""
        self._since = None


@dataclass(slots=True, kw_only=True, eq=False)
class Attempt:
    """What was dequeued, and the state that those who work on it share."""

    job: Job
    task_token: str
    call: AttemptCall | None = field(default=None, repr=False)
    """The call of its handler; set by the fast path when it begins the call."""
    started_at: int = 0
    """When its handler was called; 0 if it has none."""
    passed_on: bool = False
    """Whether its end is no longer the fast path's to report: it was reported, or a task will do it."""
    begun: bool = False
    """Whether anything happened that may have had an effect: then giving it back costs a try."""
    last_events: Sequence[Event] = ()
    """Events that nobody published yet and that belong to the attempt's end, if it is given back."""
    refused_token_seconds: float = REFUSED_TOKEN_SECONDS
    """How long every answer may refuse the task token before the attempt is lost."""
    watched: bool = False
    """Whether somebody watches the job, by the server's last answer; changed by `set_watched` only."""
    on_watched: Callable[[], None] | None = field(default=None, repr=False)
    """Called when `watched` has changed; set by the publisher."""
    _refusals: TokenRefusals | None = field(default=None, init=False, repr=False)

    @property
    def refusals(self) -> TokenRefusals:
        """What the server's answers say of the task token. Most attempts end without being asked."""
        if self._refusals is None:
            self._refusals = TokenRefusals(self.refused_token_seconds)
        return self._refusals

    def set_watched(self, watched: bool) -> None:
        """Take note of the server's answer."""
        changed = watched != self.watched
        self.watched = watched
        if changed and self.on_watched:
            self.on_watched()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutcome:
    """The end of an attempt: its result, and the last events, which become visible together with it."""

    result: JobResult
    events: Sequence[Event] = ()


def log_start(job: Job) -> None:
    """Log that an attempt starts; its repository, if it has one, without credentials."""
    url = job.params.repository_url
    repository = {"repository": masked_url(url, SECRET_MASK)} if url else {}
    _log.info("job.start", job_id=job.job_id, attempt=job.attempt, queue=job.queue, **repository)


def log_end(job: Job, result: JobResult) -> None:
    """Log how an attempt ended."""
    _log.info(
        "job.end",
        job_id=job.job_id,
        attempt=job.attempt,
        queue=job.queue,
        outcome=result.outcome.name,
        exit_code=result.exit_code,
        duration_ms=result.completed_at - result.started_at,
        events=result.final_sequence,
    )
