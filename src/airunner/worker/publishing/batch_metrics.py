"""Counting and logging the batches of one attempt: a call for each flush, never for each line."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airunner import telemetry
from airunner.domain.event import OutputBatch
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.domain.batching import Flush
    from airunner.domain.execution import BatchingConfig
    from airunner.domain.job import Job

_log = get_logger("airunner.worker")


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
        telemetry.batch_size.record(last.last_sequence - first.sequence + 1)
        telemetry.flush_reason.add(1, flush.reason.value)
        telemetry.flush_latency.record(latency_ms / 1000)
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
