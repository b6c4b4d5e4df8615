"""Logs and metrics. Until they are set up, both cost next to nothing and go nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.telemetry.logs import set_up_logs
from airunner.telemetry.otel_environment import otlp_is_wanted
from airunner.telemetry.outbox_metrics import (
    OUTBOX_METRICS,
    outbox_oldest_age,
    outbox_parked,
    outbox_pending,
    outbox_sent,
)
from airunner.telemetry.server_metrics import (
    SERVER_METRICS,
    attempts_lost,
    aws_call_time,
    aws_calls,
    aws_consumed_capacity,
    aws_follow_ups_failed,
    aws_retries,
    aws_retries_refused,
    aws_sends_failed,
    aws_throttles,
    bells_received,
    bells_refused,
    bells_sent,
    calls_body_bytes,
    calls_refused,
    calls_waiting,
    connections_refused,
    dequeues_waiting,
    events_batches,
    events_published,
    events_published_bytes,
    jobs_completed,
    jobs_dequeued,
    jobs_enqueued,
    jobs_processing_time,
    jobs_queue_wait,
    jobs_redelivered,
    jobs_released,
    loop_last_success_age,
    maintenance_jobs_skipped,
    queue_dead_letters,
    queue_depth,
    queue_messages,
    queue_oldest_age,
    queue_paused,
    queue_unconfigured,
    store_commit_time,
    store_commits,
    store_part_up,
    store_rows_unreadable,
    store_well_time,
    streams_active,
    workers_seen,
)
from airunner.telemetry.worker_metrics import (
    WORKER_METRICS,
    attempt_time,
    attempts_ended,
    attempts_running,
    batch_size,
    events_buffered,
    events_dropped,
    events_lost,
    flush_latency,
    flush_reason,
    folders_not_removed,
    handlers_overdue,
    heartbeats_failed,
    loop_lag,
    publish_latency,
    publish_retries,
    receives_failed,
    worker_slots,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.telemetry.export import Metrics
    from airunner.telemetry.instruments import Instrument

__all__ = [
    "OUTBOX_METRICS",
    "SERVER_METRICS",
    "WORKER_METRICS",
    "attempt_time",
    "attempts_ended",
    "attempts_lost",
    "attempts_running",
    "aws_call_time",
    "aws_calls",
    "aws_consumed_capacity",
    "aws_follow_ups_failed",
    "aws_retries",
    "aws_retries_refused",
    "aws_sends_failed",
    "aws_throttles",
    "batch_size",
    "bells_received",
    "bells_refused",
    "bells_sent",
    "calls_body_bytes",
    "calls_refused",
    "calls_waiting",
    "connections_refused",
    "dequeues_waiting",
    "events_batches",
    "events_buffered",
    "events_dropped",
    "events_lost",
    "events_published",
    "events_published_bytes",
    "flush_latency",
    "flush_reason",
    "folders_not_removed",
    "handlers_overdue",
    "heartbeats_failed",
    "jobs_completed",
    "jobs_dequeued",
    "jobs_enqueued",
    "jobs_processing_time",
    "jobs_queue_wait",
    "jobs_redelivered",
    "jobs_released",
    "loop_lag",
    "loop_last_success_age",
    "maintenance_jobs_skipped",
    "otlp_is_wanted",
    "outbox_oldest_age",
    "outbox_parked",
    "outbox_pending",
    "outbox_sent",
    "publish_latency",
    "publish_retries",
    "queue_dead_letters",
    "queue_depth",
    "queue_messages",
    "queue_oldest_age",
    "queue_paused",
    "queue_unconfigured",
    "receives_failed",
    "set_up_logs",
    "set_up_metrics",
    "store_commit_time",
    "store_commits",
    "store_part_up",
    "store_rows_unreadable",
    "store_well_time",
    "streams_active",
    "worker_slots",
    "workers_seen",
]


def set_up_metrics(
    service: str, instance: str, instruments: Sequence[Instrument], environment: Mapping[str, str]
) -> Metrics:
    """Have the instruments collected until `close`, as the environment's OTEL_ variables say."""
    # Not before: a client command has no use for the SDK.
    from airunner.telemetry import export

    return export.set_up_metrics(service, instance, instruments, environment)
