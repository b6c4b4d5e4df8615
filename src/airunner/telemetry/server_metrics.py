"""What a server measures. docs/operations.md says what each number means and when to worry."""

from __future__ import annotations

from typing import Final

from airunner.telemetry.instruments import LONG_SECONDS, SECONDS, Instrument, Level, Spread, Tally

queue_depth = Level("airunner.queue.depth", "Jobs in a queue, by state", "queue", "state")
queue_oldest_age = Level(
    "airunner.queue.oldest_age", "Since when the oldest scheduled job is in its queue", "queue", unit="s"
)
queue_paused = Level("airunner.queue.paused", "1 for a queue that is paused", "queue")
queue_messages = Level("airunner.queue.messages", "Messages of a queue on SQS, about", "queue", "state")
queue_dead_letters = Level(
    "airunner.queue.dead_letters", "Messages in the dead-letter queue of a queue, about", "queue"
)

jobs_enqueued = Tally("airunner.jobs.enqueued", "Jobs that were added")
jobs_dequeued = Tally("airunner.jobs.dequeued", "Attempts that were begun")
jobs_redelivered = Tally("airunner.jobs.redelivered", "Attempts beyond the first of their job")
jobs_released = Tally("airunner.jobs.released", "Attempts that were given back")
jobs_completed = Tally("airunner.jobs.completed", "Jobs that ended, in whatever way", "state", "outcome")
jobs_queue_wait = Spread(
    "airunner.jobs.queue_wait", "From when a job was due to its first dequeue", LONG_SECONDS, unit="s"
)
jobs_processing_time = Spread(
    "airunner.jobs.processing_time",
    "From a job's last dequeue to its completion",
    LONG_SECONDS,
    unit="s",
)
attempts_lost = Tally("airunner.attempts.lost", "Attempts whose worker was not heard of again", "then")

events_published = Tally("airunner.events.published", "Events that were accepted")
events_batches = Tally("airunner.events.batches", "Entries that these events were stored in")
events_published_bytes = Tally("airunner.events.published_bytes", "What these entries take", unit="By")
streams_active = Level("airunner.streams.active", "Open event streams")

dequeues_waiting = Level("airunner.dequeues.waiting", "Calls that wait for jobs")
workers_seen = Level("airunner.workers", "Workers that were heard of lately", "health")

store_commits = Tally("airunner.store.commits", "Transactions that were committed")
store_commit_time = Tally("airunner.store.commit_time", "How long these commits took", unit="s")

aws_calls = Tally("airunner.aws.calls", "Calls of AWS, each try counted", "service", "operation", "outcome")
aws_call_time = Spread(
    "airunner.aws.call_time", "How long these calls took", SECONDS, "service", "operation", unit="s"
)
aws_retries = Tally("airunner.aws.retries", "Calls of AWS that failed and were repeated", "service")
aws_throttles = Tally("airunner.aws.throttles", "Calls that AWS refused as too many", "service")
aws_consumed_capacity = Tally(
    "airunner.aws.consumed_capacity", "Capacity units that DynamoDB charged", "table", "kind"
)
aws_sends_failed = Tally("airunner.aws.sends_failed", "Messages of jobs that could not be sent")
aws_follow_ups_failed = Tally(
    "airunner.aws.follow_ups_failed", "Messages that could not be extended or deleted, marks not made"
)

SERVER_METRICS: Final[tuple[Instrument, ...]] = (
    queue_depth,
    queue_oldest_age,
    queue_paused,
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
    dequeues_waiting,
    workers_seen,
    store_commits,
    store_commit_time,
    aws_calls,
    aws_call_time,
    aws_sends_failed,
    aws_follow_ups_failed,
    aws_retries,
    aws_throttles,
    aws_consumed_capacity,
)
