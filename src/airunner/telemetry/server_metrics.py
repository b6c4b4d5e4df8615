"""What a server measures. docs/operations.md says what each number means and when to worry."""

from __future__ import annotations

from typing import Final

from airunner.telemetry.instruments import LONG_SECONDS, SECONDS, Counter, Gauge, Histogram, Instrument
from airunner.telemetry.logs import logs_dropped

queue_depth = Gauge("airunner.queue.depth", "Jobs in a queue, by state", "queue", "state")
queue_oldest_age = Gauge("airunner.queue.oldest_age", "Age of the oldest scheduled job", "queue", unit="s")
queue_paused = Gauge("airunner.queue.paused", "1 for a queue that is paused", "queue")
queue_unconfigured = Gauge(
    "airunner.queue.unconfigured", "1 for a queue that has open jobs and is configured no more", "queue"
)
queue_messages = Gauge(
    "airunner.queue.messages", "Approximate number of messages of a queue on SQS", "queue", "state"
)
queue_dead_letters = Gauge(
    "airunner.queue.dead_letters",
    "Approximate number of messages in the dead-letter queue of a queue",
    "queue",
)

jobs_enqueued = Counter("airunner.jobs.enqueued", "Jobs enqueued")
jobs_dequeued = Counter("airunner.jobs.dequeued", "Attempts begun")
jobs_redelivered = Counter("airunner.jobs.redelivered", "Attempts beyond the first of their job")
jobs_released = Counter("airunner.jobs.released", "Attempts released by their worker")
jobs_completed = Counter("airunner.jobs.completed", "Jobs ended", "state", "outcome")
jobs_queue_wait = Histogram(
    "airunner.jobs.queue_wait", "Time from when a job is due to its first dequeue", LONG_SECONDS, unit="s"
)
jobs_processing_time = Histogram(
    "airunner.jobs.processing_time",
    "Time from a job's last dequeue to its completion",
    LONG_SECONDS,
    unit="s",
)
attempts_lost = Counter("airunner.attempts.lost", "Attempts whose worker stopped calling", "then")

events_published = Counter("airunner.events.published", "Events published")
events_batches = Counter("airunner.events.batches", "Batches that these events were stored in")
events_published_bytes = Counter("airunner.events.published_bytes", "Size of these batches", unit="By")
streams_active = Gauge("airunner.streams.active", "Open event streams")

bells_sent = Counter(
    "airunner.bells.sent", "Bells for jobs that were rung at other servers, or could not be", "outcome"
)
bells_received = Counter("airunner.bells.received", "Bells for jobs that other servers rang here")
bells_refused = Counter("airunner.bells.refused", "Calls to ring here that were refused", "reason")

connections_refused = Counter(
    "airunner.connections.refused", "Connections that were refused or ended by a limit", "reason"
)

calls_refused = Counter("airunner.calls.refused", "Calls that a limit of the server refused", "reason")
calls_waiting = Gauge("airunner.calls.waiting", "Calls that wait: dequeues, GetJobs and UpdateJobs")
calls_body_bytes = Gauge("airunner.calls.body_bytes", "Bytes of requests that are in memory", unit="By")

dequeues_waiting = Gauge("airunner.dequeues.waiting", "Dequeue calls that wait for jobs")
workers_seen = Gauge("airunner.workers", "Workers that called lately", "health")

loop_last_success_age = Gauge(
    "airunner.loop.last_success_age", "Time since a background loop last did its work", "loop", unit="s"
)

store_commits = Counter("airunner.store.commits", "Transactions committed")
store_commit_time = Counter("airunner.store.commit_time", "Time that these commits took", unit="s")

store_rows_unreadable = Counter(
    "airunner.store.rows_unreadable", "Looks at rows that this server cannot read", "kind"
)

store_part_up = Gauge(
    "airunner.store.part_up",
    "1 for a queue or bucket that answers, 0 for one that does not",
    "part",
)
store_well_time = Gauge(
    "airunner.store.well_time", "Time for which the table of the jobs has answered without a pause", unit="s"
)

maintenance_jobs_skipped = Counter(
    "airunner.maintenance.jobs_skipped", "Jobs that a pass of maintenance could not see to"
)

aws_calls = Counter("airunner.aws.calls", "Calls of AWS, retries included", "service", "operation", "outcome")
aws_call_time = Histogram(
    "airunner.aws.call_time", "Time that these calls took", SECONDS, "service", "operation", unit="s"
)
aws_retries = Counter("airunner.aws.retries", "Calls of AWS that failed and were retried", "service")
aws_retries_refused = Counter(
    "airunner.aws.retries_refused", "Calls of AWS not retried since too many others failed", "service"
)
aws_throttles = Counter("airunner.aws.throttles", "Calls that AWS throttled", "service")
aws_consumed_capacity = Counter(
    "airunner.aws.consumed_capacity", "Capacity units consumed in DynamoDB", "table", "kind"
)
aws_sends_failed = Counter("airunner.aws.sends_failed", "Messages of jobs that could not be sent")
aws_follow_ups_failed = Counter(
    "airunner.aws.follow_ups_failed", "Messages that could not be extended or deleted, marks not made"
)

SERVER_METRICS: Final[tuple[Instrument, ...]] = (
    queue_depth,
    queue_oldest_age,
    queue_paused,
    queue_unconfigured,
    queue_messages,
    queue_dead_letters,
    jobs_enqueued,
    jobs_dequeued,
    jobs_redelivered,
    jobs_released,
    jobs_completed,
    jobs_queue_wait,
    jobs_processing_time,
    attempts_lost,
    events_published,
    events_batches,
    events_published_bytes,
    streams_active,
    bells_sent,
    bells_received,
    bells_refused,
    connections_refused,
    calls_refused,
    calls_waiting,
    calls_body_bytes,
    dequeues_waiting,
    workers_seen,
    loop_last_success_age,
    store_commits,
    store_commit_time,
    store_rows_unreadable,
    store_part_up,
    store_well_time,
    maintenance_jobs_skipped,
    aws_calls,
    aws_call_time,
    aws_sends_failed,
    aws_follow_ups_failed,
    aws_retries,
    aws_retries_refused,
    aws_throttles,
    aws_consumed_capacity,
    logs_dropped,
)
