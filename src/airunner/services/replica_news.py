"""News from other servers of the same store: their events, cancellations and watchers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from airunner.domain.errors import AirunnerError
from airunner.services.notifier import holder_bell, job_bell

if TYPE_CHECKING:
    from collections.abc import Hashable

    from airunner.domain.clock import Clock
    from airunner.services.notifier import Notifier
    from airunner.services.watchers import Watchers
    from airunner.stores.base import SharedStore

_log = structlog.get_logger("airunner.poller")

_BUSY_SECONDS: Final = 0.5
_IDLE_SECONDS: Final = 2.0
_BUSY_FOR_MS: Final = 10_000
_RENEW_MS: Final = 10_000
_WATCHED_MS: Final = 25_000


class ReplicaNews:
    """Looks at the jobs that somebody listens to here, once for all of them, and rings where one changed.

    Nobody else has to look at a store without a reason: an idle stream costs its share of this. What this
    server's own calls do rings by itself, at once.
    """

    def __init__(self, store: SharedStore, *, clock: Clock, notifier: Notifier, watchers: Watchers) -> None:
        self._store = store
        self._clock = clock
        self._notifier = notifier
        self._watchers = watchers
        self._marks: dict[str, Hashable] = {}
        self._renewed: dict[str, int] = {}
        self._changed_at = 0

    async def run(self) -> None:
        """Go on until cancelled; a look that fails is repeated with the next."""
        while True:
            busy = self._clock.now() - self._changed_at < _BUSY_FOR_MS
            await self._clock.sleep(_BUSY_SECONDS if busy else _IDLE_SECONDS)
            try:
                await self.run_once()
            except AirunnerError as error:
                _log.warning("poll.failed", error=error.text)

    async def run_once(self) -> None:
        """Look once. A job that is new here counts as changed: it may have, before we looked."""
        await self._renew_watched()
        wanted = self._notifier.jobs
        marks = await self._store.read_marks(wanted) if wanted else {}
        for job_id in wanted:
            if job_id not in self._marks or self._marks[job_id] != marks.get(job_id):
                self._changed_at = self._clock.now()
                self._notifier.ring(job_bell(job_id))
                self._notifier.ring(holder_bell(job_id))
        self._marks = {job_id: marks.get(job_id) for job_id in wanted}

    async def _renew_watched(self) -> None:
        """Let the other servers know what is watched here, for a while each time."""
        now = self._clock.now()
        watched = self._watchers.jobs
        due = [job_id for job_id in watched if now - self._renewed.get(job_id, 0) >= _RENEW_MS]
        if due:
            await self._store.note_watched(due, now + _WATCHED_MS)
        self._renewed = {job_id: self._renewed.get(job_id, now) for job_id in watched} | dict.fromkeys(
            due, now
        )
