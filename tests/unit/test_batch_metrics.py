"""What a worker counts and logs of batches, and of the attempts around them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import structlog

from airunner import telemetry
from airunner.domain.batching import Batcher
from airunner.domain.errors import PermanentFailure, VisibilityLost
from airunner.domain.event import ProcessEnd, ProcessStart, Progress, StreamType
from airunner.domain.execution import BatchingConfig, ExecutionConfig
from airunner.domain.job import Job, JobParams
from airunner.domain.lifecycle import Lifecycle
from airunner.queues.base import Delivery
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_failure, make_success
from airunner.worker.attempt import Attempt, JobOutcome
from airunner.worker.metrics import AttemptMetrics
from airunner.worker.publishing import batch_metrics
from airunner.worker.publishing.batch_metrics import BatchMetrics
from tests.support.scraping import Change

CONFIG = BatchingConfig(flush_interval_seconds=3, max_batch_size=10, adaptive=False)
JOB = Job(
    job_id="01890000-0000-7000-8000-000000000001",
    queue="builds",
    params=JobParams(command="make"),
    execution=ExecutionConfig(batching=CONFIG),
    created_at=0,
    request_id="",
    principal="",
    life=Lifecycle(max_attempts=3, due_at=0, updated_at=0, attempt=1),
)


class Journal:
    """What was logged."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, level: int) -> None:
        self.lines: list[dict[str, Any]] = []
        log = structlog.wrap_logger(
            None,
            processors=[structlog.processors.add_log_level, self._keep],
            wrapper_class=structlog.make_filtering_bound_logger(level),
        )
        monkeypatch.setattr(batch_metrics, "_log", log)
        monkeypatch.setattr(BatchMetrics, "_last_config", None)

    def named(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    def _keep(self, _: object, __: str, line: Any) -> Any:
        self.lines.append(dict(line))
        raise structlog.DropEvent


@pytest.fixture
def at_debug(monkeypatch: pytest.MonkeyPatch) -> Journal:
    return Journal(monkeypatch, logging.DEBUG)


@pytest.fixture
def at_info(monkeypatch: pytest.MonkeyPatch) -> Journal:
    return Journal(monkeypatch, logging.INFO)


def publish(job: Job = JOB) -> None:
    """Let an attempt print 12 lines, 10 of which fill a batch; the rest goes with its end, 1.5 s later."""
    metrics, batcher = BatchMetrics(job), Batcher(job.execution.batching)
    flushes = batcher.add(ProcessStart(pid=1, started_at=0), 1_000)
    flushes += batcher.tick(1_100)
    flushes += batcher.add_output([b"line\n"] * 12, StreamType.STDOUT, 2_000)
    for flush in flushes:
        metrics.flushed(flush, 2_000)
    for flush in batcher.add(ProcessEnd(pid=1, exit_code=0, run_duration_ms=0), 3_500):
        metrics.flushed(flush, 3_500)


def test_flushes_are_counted() -> None:
    sizes, latencies = Change(telemetry.batch_size), Change(telemetry.flush_latency)
    reasons = Change(telemetry.flush_reason)
    outputs, seconds = telemetry.batch_size.read().total, telemetry.flush_latency.read().total
    publish()
    assert (sizes(), latencies()) == (2, 3)
    assert [reasons(reason) for reason in ("time", "size", "critical", "bytes", "close")] == [1, 1, 1, 0, 0]
    assert telemetry.batch_size.read().total - outputs == 10 + 2
    assert telemetry.flush_latency.read().total - seconds == pytest.approx(1.0 + 0 + 1.5)


def test_every_batch_has_a_size_however_many_go_together() -> None:
    """Two batches with a progress between them, and the end of the process."""
    metrics, batcher = BatchMetrics(JOB), Batcher(replace(CONFIG, max_batch_size=50))
    flushes = batcher.add_output([b"line\n"] * 49, StreamType.STDOUT, 1_000)
    flushes += batcher.add(Progress(done=1, total=2), 1_000)
    flushes += batcher.add_output([b"line\n"] * 7, StreamType.STDOUT, 1_000)
    flushes += batcher.add(ProcessEnd(pid=1, exit_code=0, run_duration_ms=0), 1_000)
    before = telemetry.batch_size.read()
    for flush in flushes:
        metrics.flushed(flush, 1_000)
    after = telemetry.batch_size.read()
    assert (len(flushes), after.total - before.total) == (1, 49 + 7)
    counts = zip(telemetry.batch_size.bounds, before.bucket_counts, after.bucket_counts, strict=False)
    assert {bound: new - old for bound, old, new in counts if new > old} == {10: 1, 49: 1}


def test_without_batching_each_output_is_a_batch_of_one() -> None:
    metrics, batcher = BatchMetrics(JOB), Batcher(replace(CONFIG, max_batch_size=1))
    sizes, outputs = Change(telemetry.batch_size), telemetry.batch_size.read().total
    for flush in batcher.add_output([b"line\n"] * 3, StreamType.STDOUT, 1_000):
        metrics.flushed(flush, 1_000)
    assert (sizes(), telemetry.batch_size.read().total - outputs) == (3, 3)


def flush_together(jobs: int) -> None:
    """Let attempts print a line, and end half a second later, all at the same time."""
    batchers = [Batcher(CONFIG) for _ in range(jobs)]
    for batcher in batchers:
        assert batcher.add_output([b"line\n"], StreamType.STDOUT, 1_000) == []
    ended = [batcher.add(ProcessEnd(pid=1, exit_code=0, run_duration_ms=0), 1_500) for batcher in batchers]
    BatchMetrics.flushed_together([(JOB, flushes) for flushes in ended], 1_500)


def test_flushes_of_one_moment_are_counted_together(at_info: Journal) -> None:
    for _ in range(2):
        sizes, latencies = Change(telemetry.batch_size), Change(telemetry.flush_latency)
        reasons = Change(telemetry.flush_reason)
        outputs, seconds = telemetry.batch_size.read().total, telemetry.flush_latency.read().total
        flush_together(3)
        assert (sizes(), latencies(), reasons("critical")) == (3, 3, 3)
        assert telemetry.batch_size.read().total - outputs == 3
        assert telemetry.flush_latency.read().total - seconds == pytest.approx(1.5)
    assert len(at_info.named("batch.config")) == 1


def test_flushes_of_one_moment_are_logged_one_by_one(at_debug: Journal) -> None:
    flush_together(3)
    assert len(at_debug.named("batch.flushed")) == 3


def test_batches_and_flushes_are_logged(at_debug: Journal) -> None:
    publish()
    common = {"level": "debug", "job_id": JOB.job_id}
    assert at_debug.named("batch.created") == [
        {**common, "event": "batch.created", "size": 10, "first_sequence": 2, "last_sequence": 11},
        {**common, "event": "batch.created", "size": 2, "first_sequence": 12, "last_sequence": 13},
    ]
    flushed = at_debug.named("batch.flushed")
    assert [(line["reason"], line["latency_ms"]) for line in flushed] == [
        ("time", 1_000),
        ("size", 0),
        ("critical", 1_500),
    ]
    assert [(line["first_sequence"], line["last_sequence"]) for line in flushed] == [
        (1, 1),
        (2, 11),
        (12, 14),
    ]
    assert {line["job_id"] for line in flushed} == {JOB.job_id}


def test_the_configuration_is_logged_with_the_first_job_and_when_it_changes(at_info: Journal) -> None:
    other = replace(JOB, job_id="other", execution=ExecutionConfig())
    for job in (JOB, JOB, other, JOB):
        publish(job)
    lines = at_info.named("batch.config")
    assert [line["job_id"] for line in lines] == [JOB.job_id, "other", JOB.job_id]
    assert lines[0] == {
        "event": "batch.config",
        "level": "info",
        "job_id": JOB.job_id,
        "flush_interval_seconds": 3,
        "max_batch_size": 10,
        "max_batch_bytes": CONFIG.max_batch_bytes,
        "playback_interval_millis": 50,
        "adaptive": False,
    }


def test_the_configuration_of_every_job_is_there_for_debugging(at_debug: Journal) -> None:
    publish()
    publish()
    assert [line["level"] for line in at_debug.named("batch.config")] == ["info", "debug"]


def test_nothing_is_said_of_batches_above_debug(at_info: Journal) -> None:
    publish()
    assert {line["event"] for line in at_info.lines} == {"batch.config"}


async def _ends(outcome: JobOutcome | BaseException, clock: ManualClock) -> JobOutcome:
    clock.advance(2)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


@pytest.mark.parametrize(
    ("end", "lost", "counted"),
    [
        (JobOutcome(result=make_success()), False, "success"),
        (JobOutcome(result=make_failure()), False, "failure"),
        (PermanentFailure("broken"), False, "failure"),
        (ValueError("once more"), False, "released"),
        (asyncio.CancelledError(), False, "released"),
        (asyncio.CancelledError(), True, "lost"),
        (VisibilityLost(), False, "lost"),
    ],
    ids=["success", "failure", "permanent", "error", "interrupted", "taken away", "fenced"],
)
async def test_attempts_are_counted_by_their_end(
    end: JobOutcome | BaseException, lost: bool, counted: str
) -> None:
    clock = ManualClock()

    async def process(delivery: Delivery[Attempt]) -> JobOutcome:
        delivery.lost = lost
        return await _ends(end, clock)

    metrics = AttemptMetrics(process, clock)
    ended, seconds = Change(telemetry.attempts_ended), telemetry.attempt_time.read().total
    delivery = Delivery(body=Attempt(job=JOB, task_token="token"), key=JOB.job_id)
    (result,) = await asyncio.gather(metrics.process(delivery), return_exceptions=True)
    assert type(result) is type(end)
    assert ended(counted) == 1
    assert telemetry.attempt_time.read().total - seconds == pytest.approx(2)


@pytest.fixture(autouse=True)
def _forget_config() -> Iterator[None]:
    yield
    BatchMetrics._last_config = None
