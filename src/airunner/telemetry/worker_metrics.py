"""What a worker measures. docs/operations.md says what each number means and when to worry."""

from __future__ import annotations

from typing import Final

from airunner.telemetry.instruments import LONG_SECONDS, SECONDS, Counter, Gauge, Histogram, Instrument
from airunner.telemetry.logs import logs_dropped

attempts_ended = Counter("airunner.worker.attempts", "Attempts that ended here", "outcome")
attempts_running = Gauge("airunner.worker.running", "Attempts at work")
handlers_overdue = Gauge(
    "airunner.worker.handlers_overdue", "Handlers that go on though their attempts are over"
)
worker_slots = Gauge("airunner.worker.slots", "Attempts that may be at work at the same time")
loop_lag = Histogram(
    "airunner.worker.loop_lag", "How late a beat of the worker's event loop was", SECONDS, unit="s"
)
attempt_time = Histogram(
    "airunner.worker.attempt_time", "From the begin of an attempt to its end here", LONG_SECONDS, unit="s"
)
receives_failed = Counter("airunner.worker.receives_failed", "Dequeues that got no answer, or a refusal")
heartbeats_failed = Counter("airunner.worker.heartbeats_failed", "Heartbeats that got no answer")
folders_not_removed = Counter(
    "airunner.worker.folders_not_removed", "Attempts to remove a work folder that failed"
)

batch_size = Histogram(
    "airunner.batching.batch_size", "Outputs in a batch", (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 40.0, 49.0, 50.0)
)
flush_reason = Counter("airunner.batching.flush_reason", "Flushes, by reason", "reason")
flush_latency = Histogram(
    "airunner.batching.flush_latency", "Time from the first event of a batch to its flush", SECONDS, unit="s"
)
events_buffered = Gauge("airunner.batching.events_buffered", "Events not acknowledged by a server yet")

publish_latency = Histogram(
    "airunner.publish.latency", "Time from a publish call to its acknowledgement", SECONDS, unit="s"
)
publish_retries = Counter("airunner.publish.retries", "Publish calls that failed and were retried")
events_lost = Counter("airunner.publish.events_lost", "Events lost and replaced by a GAP")
events_dropped = Counter(
    "airunner.publish.events_dropped", "Events of attempts that were lost since their task token was refused"
)

WORKER_METRICS: Final[tuple[Instrument, ...]] = (
    attempts_ended,
    attempts_running,
    handlers_overdue,
    worker_slots,
    loop_lag,
    attempt_time,
    receives_failed,
    heartbeats_failed,
    folders_not_removed,
    batch_size,
    flush_reason,
    flush_latency,
    events_buffered,
    publish_latency,
    publish_retries,
    events_lost,
    events_dropped,
    logs_dropped,
)
