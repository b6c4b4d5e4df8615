"""News that the store tells by itself, sooner than the poller asks for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from airunner.domain.errors import AirunnerError
from airunner.services.notifier import job_bell

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.services.notifier import Notifier
    from airunner.stores.base import SharedStore

_log = structlog.get_logger("airunner.follower")

_PASS_SECONDS: Final = 0.25
_AFTER_FAILURE_SECONDS: Final = 30.0


class Follower:
    """Rings for jobs that got events on other servers, while somebody listens here.

    The poller goes on beside it and finds whatever this misses, so a failure is only worth a line in the log.
    """

    def __init__(self, store: SharedStore, *, clock: Clock, notifier: Notifier) -> None:
        self._store = store
        self._clock = clock
        self._notifier = notifier

    async def run(self) -> None:
        """Go on until cancelled."""
        pause = _PASS_SECONDS
        while True:
            await self._clock.sleep(pause)
            try:
                await self.run_once()
                pause = _PASS_SECONDS
            except AirunnerError as error:
                _log.warning("changes.failed", error=error.text)
                pause = _AFTER_FAILURE_SECONDS

    async def run_once(self) -> None:
        """Read once what has changed; nobody's bell costs nothing."""
        if self._notifier.heard:
            for job_id in await self._store.read_changes():
                self._notifier.ring(job_bell(job_id))
