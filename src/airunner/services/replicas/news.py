"""News from other servers of the same store: their events, cancellations and watchers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from airunner.services.notifier import BellKind, job_bell
from airunner.services.periodic import READING_SECONDS, Periodic
from airunner.stores.records import JobMark

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.lifecycle import Lifecycle
    from airunner.services.notifier import Notifier
    from airunner.services.watchers import Watchers
    from airunner.stores.abilities import ChangeStream, SharedState

TURN_SECONDS: Final = 0.5
"""Between two turns of the loop; one in which no job is due costs nothing."""
_WATCHED_MS: Final = 500
_IDLE_MS: Final = 2_000
_BUSY_FOR_MS: Final = 10_000
_HELD_MS: Final = 4_000
_RENEW_MS: Final = 10_000
_RENEW_AFTER_FAILURE_MS: Final = 2_000
_ATTENTION_MS: Final = 25_000

_CHANGES_SECONDS: Final = 0.25
_CHANGES_AFTER_FAILURE_SECONDS: Final = 30.0


@dataclass(slots=True)
class _Known:
    """What was last seen of a job; instants are of the monotonic clock."""

    looked_at: int
    changed_at: int
    is_watched: bool = False
    seen: dict[BellKind, Hashable] = field(default_factory=dict)
    """By bell, what those who listen to it know; one that is missing may have changed before we looked."""

    def due_at(self) -> int:
        if not self.is_watched:
            return self.looked_at + _HELD_MS
        busy = self.looked_at - self.changed_at < _BUSY_FOR_MS
        return self.looked_at + (_WATCHED_MS if busy else _IDLE_MS)


class ReplicaNews:
    """Looks at the jobs that somebody listens to here, once for all of them, and rings where one changed.

    A job whose events or end somebody waits for is looked at every half a second, every two where nothing
    happened for a while; one that is only held, every four. Nobody else has to look at a store without a
    reason: an idle stream costs its share of this. What this server's own calls do rings by itself, at once.
    """

    def __init__(self, shared: SharedState, *, clock: Clock, notifier: Notifier, watchers: Watchers) -> None:
        self._shared = shared
        self._clock = clock
        self._notifier = notifier
        self._watchers = watchers
        self._known: dict[str, _Known] = {}
        # By job that is watched, when to say so again, of the monotonic clock; 0 if it was not said yet.
        self._renew_at: dict[str, int] = {}
        notifier.on_life(self._saw)

    def periodic(self) -> Periodic:
        """Return the loop that looks."""
        return Periodic(
            "replica_news",
            self.run_once,
            clock=self._clock,
            interval_seconds=TURN_SECONDS,
            failure_event="poll.failed",
        )

    async def run_once(self) -> None:
        """Look at what is due, and say what is watched here; if one of the two fails, the other is done."""
        outcomes = await asyncio.gather(self._look(), self._renew_watched(), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _look(self) -> None:
        now = self._clock.monotonic()
        jobs = self._notifier.jobs
        self._known = {job_id: self._meet(job_id, kinds, now) for job_id, kinds in jobs.items()}
        due = [job_id for job_id, known in self._known.items() if known.due_at() <= now]
        if not due:
            return
        marks = await self._shared.read_marks(due)
        for job_id in due:
            self._compare(job_id, jobs[job_id], marks.get(job_id), now)

    def _meet(self, job_id: str, kinds: Sequence[BellKind], now: int) -> _Known:
        """Return what is known of a job. One that is watched from now on is looked at at once."""
        known = self._known.get(job_id) or _Known(looked_at=now, changed_at=now)
        is_watched = any(kind is not BellKind.HOLDER for kind in kinds)
        if is_watched and not known.is_watched:
            known.looked_at, known.changed_at = now - _WATCHED_MS, now
        known.is_watched = is_watched
        return known

    def _compare(self, job_id: str, kinds: Sequence[BellKind], mark: JobMark | None, now: int) -> None:
        """Ring the bells for which the job has changed."""
        known = self._known.get(job_id)
        if known is None:
            return
        known.looked_at = now
        seen = self._views(mark)
        for kind in kinds:
            if kind not in known.seen or known.seen[kind] != seen[kind]:
                self._notifier.ring(f"{kind}:{job_id}")
                if kind is not BellKind.HOLDER:
                    known.changed_at = now
        known.seen = seen

    def _saw(self, job_id: str, life: Lifecycle, told: Collection[BellKind]) -> None:
        """Remember what a call of this server has seen, so that nobody is woken for it again.

        Others than those who were told may learn of something by it.
        """
        now = self._clock.monotonic()
        known = self._known.setdefault(job_id, _Known(looked_at=now, changed_at=now))
        for kind, view in self._views(JobMark.of(life)).items():
            if kind in told:
                known.seen[kind] = view
            elif kind in known.seen and known.seen[kind] != view:
                known.seen[kind] = view
                self._notifier.ring(f"{kind}:{job_id}")

    def _views(self, mark: JobMark | None) -> dict[BellKind, Hashable]:
        """Return, by bell, what those who listen to it see of a job; None for a job that is gone."""
        if mark is None:
            return dict.fromkeys(BellKind)
        watched = mark.watched_until > self._clock.now()
        return {
            BellKind.JOB: (mark.state, mark.attempt, mark.last_sequence),
            BellKind.END: mark.state,
            BellKind.HOLDER: (mark.state, mark.attempt, mark.cancel_requested, watched),
        }

    async def _renew_watched(self) -> None:
        """Let the other servers know what is watched here, for a while each time; holders hear it at once."""
        now = self._clock.monotonic()
        self._renew_at = {job_id: self._renew_at.get(job_id, 0) for job_id in self._watchers.jobs}
        due = [job_id for job_id, renew_at in self._renew_at.items() if renew_at <= now]
        if not due:
            return
        is_first = {job_id for job_id in due if not self._renew_at[job_id]}
        # It lasts for longer than that: one that fails may come late.
        self._renew_at |= dict.fromkeys(due, now + _RENEW_AFTER_FAILURE_MS)
        lives = await self._shared.note_watched(due, self._clock.now() + _ATTENTION_MS)
        self._renew_at |= dict.fromkeys(due, now + _RENEW_MS)
        for job_id in is_first & lives.keys():
            self._notifier.watched(job_id, lives[job_id])


class ChangeFeed:
    """Rings for jobs that got events on other servers, as soon as the store tells of them.

    ReplicaNews goes on beside it and finds whatever this misses.
    """

    def __init__(self, changes: ChangeStream, *, clock: Clock, notifier: Notifier) -> None:
        self._changes = changes
        self._clock = clock
        self._notifier = notifier

    def periodic(self) -> Periodic:
        """Return the loop that reads; after a failure it leaves the feed alone for a while."""
        return Periodic(
            "change_feed",
            self.run_once,
            clock=self._clock,
            interval_seconds=_CHANGES_SECONDS,
            failure_event="changes.failed",
            turn_seconds=READING_SECONDS,
            failure_pause_seconds=_CHANGES_AFTER_FAILURE_SECONDS,
        )

    async def run_once(self) -> None:
        """Read once what has changed; while nobody listens this costs nothing."""
        if self._notifier.heard:
            for job_id in await self._changes.read():
                self._notifier.ring(job_bell(job_id))
