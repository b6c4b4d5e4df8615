"""Counting and logging the batches of one attempt: a call for each flush, never for each line."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from airunner import telemetry
from airunner.domain.event import Output, OutputBatch
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.batching import Flush
    from airunner.domain.execution import BatchingConfig
    from airunner.domain.job import Job

_log = get_logger("airunner.worker")
_OUTPUT = (Output, OutputBatch)


class BatchMetrics:
    """Counts and logs each flush of an attempt, and logs its batching configuration."""

    # The last one that was logged. Most jobs have the same: it is logged at info level when it changes.
    _last_config: BatchingConfig | None = None

    def __init__(self, job: Job) -> None:
        self._job_id = job.job_id
        self._log_config(job.execution.batching)

    def flushed(self, flush: Flush, now: int) -> None:
        """Count a flush; at debug level, log it and its batches."""
        first, last = flush.events[0], flush.events[-1]
        latency_ms = now - first.timestamp
        _count(_sizes(flush), latency_ms, flush.reason.value)
        if not _log.is_enabled_for(logging.DEBUG):
            return
        for event in flush.events:
            if isinstance(event.data, OutputBatch):
                _log.debug(
                    "batch.created",
                    job_id=self._job_id,
                    size=len(event.data.outputs),
                    first_sequence=event.sequence,
                    last_sequence=event.last_sequence,
                )
        _log.debug(
            "batch.flushed",
            job_id=self._job_id,
            reason=flush.reason.value,
            latency_ms=latency_ms,
            first_sequence=first.sequence,
            last_sequence=last.last_sequence,
        )

    @classmethod
    def flushed_together(cls, flushed: Sequence[tuple[Job, Sequence[Flush]]], now: int) -> None:
        """Count what attempts flushed at one moment, as `flushed` would; what is alike is counted at once."""
        known = all(job.execution.batching == cls._last_config for job, _ in flushed)
        if not known or _log.is_enabled_for(logging.DEBUG):
            for job, flushes in flushed:
                metrics = cls(job)
                for flush in flushes:
                    metrics.flushed(flush, now)
            return
        alike = Counter(
            (_sizes(flush), now - flush.events[0].timestamp, flush.reason.value)
            for _, flushes in flushed
            for flush in flushes
        )
        for (sizes, latency_ms, reason), times in alike.items():
            _count(sizes, latency_ms, reason, times)

    def _log_config(self, config: BatchingConfig) -> None:
        level = logging.DEBUG if config == BatchMetrics._last_config else logging.INFO
        BatchMetrics._last_config = config
        if not _log.is_enabled_for(level):
            return
        _log.log(
            level,
            "batch.config",
            job_id=self._job_id,
            flush_interval_seconds=config.flush_interval_seconds,
            max_batch_size=config.max_batch_size,
            max_batch_bytes=config.max_batch_bytes,
            playback_interval_millis=config.playback_interval_millis,
            adaptive=config.adaptive,
        )


def _sizes(flush: Flush) -> tuple[int, ...]:
    """Return how many outputs each batch of a flush has; one that is published alone is a batch of one."""
    outputs = [event.data for event in flush.events if isinstance(event.data, _OUTPUT)]
    return tuple([len(data.outputs) if isinstance(data, OutputBatch) else 1 for data in outputs])


def _count(sizes: tuple[int, ...], latency_ms: int, reason: str, times: int = 1) -> None:
    for size in sizes:
        telemetry.batch_size.record(size, times)
    telemetry.flush_reason.add(times, reason)
    telemetry.flush_latency.record(latency_ms / 1000, times)
