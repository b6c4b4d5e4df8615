"""How a worker runs a job: the settings that the server stamps on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from airunner.domain import limits

BATCHING_RANGES: Final = {
    "flush_interval_seconds": (1, 3600),
    "max_batch_size": (1, limits.MAX_BATCH_EVENTS),
    "max_batch_bytes": (1024, limits.MAX_EVENT_BYTES),
    "playback_interval_millis": (1, 60_000),
}
"""The least and the greatest value of each number of BatchingConfig."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingConfig:
    """How a worker gathers output before it publishes."""

    flush_interval_seconds: int = 2
    max_batch_size: int = limits.MAX_BATCH_EVENTS
    max_batch_bytes: int = 256 * 1024
    playback_interval_millis: int = 50
    adaptive: bool = True

    def validate(self) -> None:
        """Refuse values beyond the limits of the contract."""
        for name, (low, high) in BATCHING_RANGES.items():
            limits.check_range(getattr(self, name), name, low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionConfig:
    """What the server asks of the worker; it travels with each job."""

    batching: BatchingConfig = BatchingConfig()
    heartbeat_interval_seconds: int = 30
    assumed: bool = field(default=False, compare=False)
    """Set when a job is read from a server that sent none: these are the defaults of this program."""

    def validate(self) -> None:
        """Refuse values beyond the limits of the contract."""
        self.batching.validate()
        limits.check_range(
            self.heartbeat_interval_seconds, "heartbeat_interval_seconds", 1, limits.MAX_VISIBILITY_SECONDS
        )
