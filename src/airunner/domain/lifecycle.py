"""How a job changes: the state machine as pure functions, which every store applies inside its write.

    SCHEDULED --claim--> RUNNING --complete--> COMPLETED | FAILED | CANCELLED
        ^                   |
        +-----release-------+        claim again once the visibility lapsed

The attempt is the fence: it rises with every claim, no number is used twice, and whoever shows another
number is told `AttemptSuperseded`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.domain.errors import AttemptSuperseded, FailedPrecondition, SequenceMismatch
from airunner.domain.job import JobResult, JobState, Outcome
from airunner.domain.limits import MAX_VISIBILITY_SECONDS
from airunner.domain.record import altered, record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.event import EncodedEvent


@record
class Lifecycle:
    """The part of a job that changes. Instants are Unix milliseconds of the server's clock."""

    max_attempts: int
    """How many tries the job has. Set by enqueue; never changes."""
    due_at: int
    """No dequeue claims the job before this instant. Set by enqueue, moved by release."""
    updated_at: int
    """The instant of the last write of this record. Set by every function below that changes something."""
    state: JobState = JobState.SCHEDULED
    """Where the job stands. Set by claim, release, complete, cancel and expire; a terminal state is final."""
    attempt: int = 0
    """The number of the current attempt; 0 before the first. Raised by claim alone: none is used twice."""
    handed_back: int = 0
    """How many attempts cost no try. Raised by a release that says the attempt was never started, and by the
    claim that follows a silent attempt, for two of those in a row at most."""
    visible_until: int = 0
    """When the current attempt lapses; 0 if nobody holds the job. Set by claim, which may give
    a shorter first lease than the visibility; by extend and by survive_downtime."""
    visibility_seconds: int = 0
    """The visibility timeout of the current attempt. Set by claim; extend may replace it."""
    cancel_requested: bool = False
    """Whether somebody cancelled the job. Set by cancel while the job is open; never unset."""
    worker_id: str = ""
    """The worker that holds, or held last, the job, as it names itself. Set by claim, emptied by release."""
    instance_id: str = ""
    """The machine of that worker, as it names it. Set by claim, emptied by release."""
    last_sequence: int = 0
    """The last stored event of the current attempt. Set to 0 by claim; raised by append and finish."""
    last_error: str = ""
    """What went wrong in the last attempt that was given back with an error. Set by release."""
    result: JobResult | None = None
    """How the job ended. Set once, with its terminal state: by its holder, or by the server."""
    completed_by: int = 0
    """The attempt that completed the job, so that a repetition is known as such; 0 if the server ended it."""
    finished_at: int = 0
    """The instant of the end; the retention of the job counts from it. Set with `result`."""
    silent_attempts: int = 0
    """How many attempts in a row, the current one included, gave no sign: no beat, no event, no end. Raised
    by claim, set to 0 by extend, events and release; an unstarted release takes its own attempt out."""
    cancelled_by: str = ""
    """The principal that cancelled the job first. Set by cancel, with `cancel_requested`."""
    cancelled_at: int = 0
    """The instant of that."""
    watched_until: int = 0
    """Until when somebody streams the job on another server. Set by `note_watched` of a shared store."""
    watchers_at: tuple[tuple[str, int], ...] = ()
    """The addresses of the servers where that is, each with its own end. Set with `watched_until`."""
    holder_at: str = ""
    """The address of the server that the holder's last beat came to. Set with it, by a shared store."""

    @property
    def tries_left(self) -> int:
        """How many further attempts may be claimed, if the current one counts."""
        return self.max_attempts - (self.attempt - self.handed_back)

    @property
    def tries_after_lapse(self) -> int:
        """How many further attempts may be claimed if the current one lapses as it is."""
        return self.tries_left + self.lapse_is_free

    @property
    def lapse_is_free(self) -> bool:
        """Whether a lapse now costs no try: perhaps nobody got the job. That is so twice in a row at most."""
        return self.state is JobState.RUNNING and 0 < self.silent_attempts <= 2

    @property
    def claimable_from(self) -> int | None:
        """The instant from which a dequeue may claim the job; None when it may not at all."""
        if self.cancel_requested or self.tries_after_lapse <= 0:
            return None
        if self.state is JobState.SCHEDULED:
            return self.due_at
        return self.visible_until if self.state is JobState.RUNNING else None

    @property
    def expires_at(self) -> int | None:
        """The instant from which maintenance ends the job; None when a dequeue or nobody will."""
        if self.state is JobState.RUNNING and (self.cancel_requested or self.tries_after_lapse <= 0):
            return self.visible_until
        return None


def claim(
    life: Lifecycle,
    *,
    now: int,
    visibility_seconds: int,
    first_lease_seconds: int = 0,
    worker_id: str,
    instance_id: str,
) -> Lifecycle:
    """Begin the next attempt. The caller has seen that the job is claimable now."""
    lease_seconds = min(first_lease_seconds or visibility_seconds, visibility_seconds)
    return altered(
        life,
        state=JobState.RUNNING,
        attempt=life.attempt + 1,
        handed_back=life.handed_back + life.lapse_is_free,
        silent_attempts=life.silent_attempts + 1,
        visible_until=now + lease_seconds * 1000,
        visibility_seconds=visibility_seconds,
        worker_id=worker_id,
        instance_id=instance_id,
        last_sequence=0,
        updated_at=now,
    )


def held(life: Lifecycle, attempt: int) -> Lifecycle:
    """Return the life if `attempt` is current and running; a lapsed one is, until it is claimed again."""
    if life.attempt != attempt or life.state is not JobState.RUNNING:
        raise AttemptSuperseded
    return life


def extend(life: Lifecycle, attempt: int, *, now: int, visibility_seconds: int) -> Lifecycle:
    """Give the holder more time, counted from now; zero keeps the visibility it has."""
    held(life, attempt)
    seconds = visibility_seconds or life.visibility_seconds
    until = now + seconds * 1000
    return altered(life, visible_until=until, visibility_seconds=seconds, silent_attempts=0, updated_at=now)


def append(
    life: Lifecycle, attempt: int, events: Sequence[EncodedEvent], *, now: int
) -> tuple[Lifecycle, list[EncodedEvent]]:
    """Take the events that continue the attempt; return those that are to be stored.

    A range that is stored already is skipped, so publishing may be repeated; anything else that does not
    begin at the expected sequence is refused.
    """
    fresh = _continuing(held(life, attempt), events)
    if fresh:
        life = altered(life, last_sequence=fresh[-1].last_sequence, silent_attempts=0, updated_at=now)
    return life, fresh


def release(
    life: Lifecycle, attempt: int, *, now: int, delay_seconds: int, unstarted: bool, error: str
) -> Lifecycle:
    """Give the job back; with no try left, or cancelled, it ends instead.

    An unstarted attempt counts no try and is only accepted while it has stored no event.
    """
    held(life, attempt)
    if unstarted and life.last_sequence:
        raise FailedPrecondition("the attempt has stored events, so it has begun")
    given_back = altered(
        life,
        state=JobState.SCHEDULED,
        handed_back=life.handed_back + unstarted,
        silent_attempts=max(0, life.silent_attempts - 1) if unstarted else 0,
        due_at=now + delay_seconds * 1000,
        visible_until=0,
        worker_id="",
        instance_id="",
        last_error=error or life.last_error,
        updated_at=now,
    )
    if life.cancel_requested:
        return _end(given_back, Outcome.CANCELLED, "cancelled", now)
    if given_back.tries_left > 0:
        return given_back
    outcome = Outcome.FAILURE if error else Outcome.INTERRUPTED
    return _end(given_back, outcome, error or "interrupted on its last try", now)


def finish(
    life: Lifecycle, attempt: int, result: JobResult, events: Sequence[EncodedEvent], *, now: int
) -> tuple[Lifecycle, list[EncodedEvent]]:
    """End the job with its holder's result and take its last events, both or neither; return these.

    Repeating the completion that ended the job changes nothing; another result is refused. With a final
    sequence given, all events up to it must be stored.
    """
    if life.completed_by == attempt and life.state.terminal:
        if life.result == result:
            return life, []
        raise FailedPrecondition("the job was completed with another result")
    fresh = _continuing(held(life, attempt), events)
    last_sequence = fresh[-1].last_sequence if fresh else life.last_sequence
    if result.final_sequence and result.final_sequence != last_sequence:
        raise SequenceMismatch(last_sequence + 1, result.final_sequence)
    over = altered(
        life,
        state=_final_state(life, result),
        last_sequence=last_sequence,
        result=result,
        completed_by=attempt,
        visible_until=0,
        silent_attempts=0,
        finished_at=now,
        updated_at=now,
    )
    return over, fresh


def cancel(life: Lifecycle, *, now: int, by: str = "") -> Lifecycle:
    """End a scheduled job; mark a running one, never to be claimed again; leave a terminal one alone."""
    if life.state.terminal or life.cancel_requested:
        return life
    marked = altered(life, cancel_requested=True, cancelled_by=by, cancelled_at=now, updated_at=now)
    return _end(marked, Outcome.CANCELLED, "cancelled", now) if life.state is JobState.SCHEDULED else marked


def expire(life: Lifecycle, *, now: int) -> Lifecycle:
    """End a job whose holder is gone and that nobody may claim again; leave any other as it is."""
    expires_at = life.expires_at
    if expires_at is None or expires_at > now:
        return life
    if life.cancel_requested:
        return _end(life, Outcome.CANCELLED, "cancelled", now)
    return _end(life, Outcome.LOST, "the worker was lost on the last try", now)


def survive_downtime(life: Lifecycle, *, now: int) -> Lifecycle:
    """Give a running job its whole visibility again, since its worker could not reach us meanwhile."""
    whole = now + life.visibility_seconds * 1000
    return recall(altered(life, visible_until=max(life.visible_until, whole)), now=now)


def recall(life: Lifecycle, *, now: int) -> Lifecycle:
    """Bring back a visibility that no clock that is right can have given: a wrong one was set back since."""
    if life.state is not JobState.RUNNING or life.visible_until <= now + MAX_VISIBILITY_SECONDS * 1000:
        return life
    return altered(life, visible_until=now + life.visibility_seconds * 1000, updated_at=now)


def _continuing(life: Lifecycle, events: Sequence[EncodedEvent]) -> list[EncodedEvent]:
    """Return the events that are not stored yet, as those of the current attempt."""
    last = life.last_sequence
    fresh: list[EncodedEvent] = []
    for event in events:
        if event.last_sequence <= last:
            continue
        if event.first_sequence != last + 1:
            raise SequenceMismatch(last + 1, event.first_sequence)
        fresh.append(event.of_attempt(life.attempt))
        last = event.last_sequence
    return fresh


def _end(life: Lifecycle, outcome: Outcome, error: str, now: int) -> Lifecycle:
    state = JobState.CANCELLED if outcome is Outcome.CANCELLED else JobState.FAILED
    result = JobResult(success=False, outcome=outcome, error_message=error, completed_at=now)
    return altered(life, state=state, result=result, visible_until=0, finished_at=now, updated_at=now)


def _final_state(life: Lifecycle, result: JobResult) -> JobState:
    if life.cancel_requested and result.outcome in (Outcome.CANCELLED, Outcome.INTERRUPTED):
        return JobState.CANCELLED
    return JobState.COMPLETED if result.success else JobState.FAILED
