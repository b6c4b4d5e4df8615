"""News from other servers of the same store: their events, cancellations and watchers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.services.notifier import holder_bell, job_bell
from airunner.services.periodic import Periodic

if TYPE_CHECKING:
    from collections.abc import Hashable

    from airunner.domain.clock import Clock
    from airunner.services.notifier import Notifier
    from airunner.services.watchers import Watchers
    from airunner.stores.abilities import ChangeStream, SharedState

_BUSY_SECONDS: Final = 0.5
_IDLE_SECONDS: Final = 2.0
_BUSY_FOR_MS: Final = 10_000
_RENEW_MS: Final = 10_000
_WATCHED_MS: Final = 25_000

_CHANGES_SECONDS: Final = 0.25
_CHANGES_AFTER_FAILURE_SECONDS: Final = 30.0


class ReplicaNews:
    """Looks at the jobs that somebody listens to here, once for all of them, and rings where one changed.

    Nobody else has to look at a store without a reason: an idle stream costs its share of this. What this
    server's own calls do rings by itself, at once.
    """

    def __init__(self, shared: SharedState, *, clock: Clock, notifier: Notifier, watchers: Watchers) -> None:
        self._shared = shared
        self._clock = clock
        self._notifier = notifier
        self._watchers = watchers
        self._marks: dict[str, Hashable] = {}
        self._renewed: dict[str, int] = {}
        self._changed_at = 0

    def periodic(self) -> Periodic:
        """Return the loop that looks: often while jobs change, seldom while they do not."""
        return Periodic(
            "replica_news",
            self.run_once,
            clock=self._clock,
            interval_seconds=self._interval,
            failure_event="poll.failed",
        )

    async def run_once(self) -> None:
        """Look once. A job that is new here counts as changed: it may have, before we looked."""
        await self._renew_watched()
        wanted = self._notifier.jobs
        marks = await self._shared.read_marks(wanted) if wanted else {}
        for job_id in wanted:
            if job_id not in self._marks or self._marks[job_id] != marks.get(job_id):
                self._changed_at = self._clock.now()
                self._notifier.ring(job_bell(job_id))
                self._notifier.ring(holder_bell(job_id))
        self._marks = {job_id: marks.get(job_id) for job_id in wanted}

    def _interval(self) -> float:
        busy = self._clock.now() - self._changed_at < _BUSY_FOR_MS
        return _BUSY_SECONDS if busy else _IDLE_SECONDS

    async def _renew_watched(self) -> None:
        """Let the other servers know what is watched here, for a while each time."""
        now = self._clock.now()
        watched = self._watchers.jobs
        due = [job_id for job_id in watched if now - self._renewed.get(job_id, 0) >= _RENEW_MS]
        if due:
            await self._shared.note_watched(due, now + _WATCHED_MS)
        self._renewed = {job_id: self._renewed.get(job_id, now) for job_id in watched} | dict.fromkeys(
            due, now
        )


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
            failure_pause_seconds=_CHANGES_AFTER_FAILURE_SECONDS,
        )

    async def run_once(self) -> None:
        """Read once what has changed; while nobody listens this costs nothing."""
        if self._notifier.heard:
            for job_id in await self._changes.read():
                self._notifier.ring(job_bell(job_id))
