"""Counting refusals: each in a metric, all of a minute in one line of the log."""

from __future__ import annotations

from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.telemetry.instruments import Counter

_log = get_logger("airunner.server")

_LOG_INTERVAL_MS: Final = 60_000


class CallRefusal(StrEnum):
    """Why a call was refused; the values are labels of a metric."""

    BODY_BYTES = "body_bytes"
    WAITING_CALLS = "waiting_calls"
    WAITING_WRITES = "waiting_writes"
    STREAMS = "streams"
    PRINCIPAL_STREAMS = "principal_streams"
    QUEUE_NAMES = "queue_names"
    RATE = "rate"
    FAILED_KEYS = "failed_keys"


class BellRefusal(StrEnum):
    """Why a bell of another server was refused; the values are labels of a metric."""

    RATE = "rate"
    TOO_LARGE = "too_large"
    UNSIGNED = "unsigned"


class RefusalLog:
    """Counts refusals by their reason; the log has a line a minute, however many there are."""

    def __init__(self, counter: Counter, event: str, clock: Clock) -> None:
        self._counter = counter
        self._event = event
        self._clock = clock
        self._unlogged: dict[StrEnum, int] = {}
        self._logged_at: int | None = None

    def add(self, reason: StrEnum) -> None:
        """Count a refusal. It never raises: whoever is refused shall hear of that and of nothing else."""
        self._counter.add(1, reason.value)
        self._unlogged[reason] = self._unlogged.get(reason, 0) + 1
        now = self._clock.now()
        # A clock that was set back is no reason to be silent for longer.
        if self._logged_at is None or not 0 <= now - self._logged_at < _LOG_INTERVAL_MS:
            self._logged_at = now
            counts, self._unlogged = self._unlogged, {}
            with suppress(Exception):
                _log.warning(self._event, **{reason.value: count for reason, count in counts.items()})
