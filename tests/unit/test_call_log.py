"""What a server logs of the calls that change something: a line each, and never a call that fails for it."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from io import StringIO
from typing import Any

import pytest
import structlog

from airunner import telemetry
from airunner.domain.answers import DequeuedJob, Enqueued
from airunner.domain.errors import FailedPrecondition, InvalidArgument
from airunner.domain.execution import BatchingConfig
from airunner.domain.requests import (
    BatchingOverride,
    CompleteRequest,
    DequeueRequest,
    EnqueueRequest,
    ExecutionOverride,
    StreamRequest,
)
from airunner.services import call_log
from airunner.services.caller import Caller, current_caller
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.stores.records import ApiKey
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_batch, make_request, make_services, make_success

REQUEST_ID = "00000000-0000-4000-8000-000000000001"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def services(clock: ManualClock) -> AsyncIterator[Services]:
    token = current_caller.set(Caller(principal="ann"))
    async with make_services(MemoryStore(clock), clock) as opened:
        yield opened
    current_caller.reset(token)


class Logs:
    """The lines that were written, those at debug included."""

    def __init__(self, captured: Sequence[Mapping[str, Any]]) -> None:
        self._captured = captured

    @property
    def all(self) -> Sequence[Mapping[str, Any]]:
        call_log.write_waiting()
        return self._captured

    def named(self, event: str) -> list[Mapping[str, Any]]:
        return [line for line in self.all if line["event"] == event]

    def at(self, level: str) -> list[str]:
        return [line["event"] for line in self.all if line["log_level"] == level]


@pytest.fixture
def logs() -> Iterator[Logs]:
    with structlog.testing.capture_logs() as lines:
        yield Logs(lines)


async def enqueue(services: Services, *requests: EnqueueRequest) -> list[str]:
    outcomes = await services.jobs.enqueue_jobs(requests)
    return [outcome.job_id for outcome in outcomes if isinstance(outcome, Enqueued)]


async def claim(services: Services) -> DequeuedJob:
    (held,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
    return held


async def test_a_call_that_adds_many_jobs_is_one_line(services: Services, logs: Logs) -> None:
    batching = ExecutionOverride(batching=BatchingOverride(flush_interval_seconds=7))
    requests = [make_request("builds", execution=batching), make_request("other"), make_request("builds")]
    job_ids = await enqueue(services, *requests)
    assert logs.at("info") == ["jobs.enqueued"]
    (line,) = logs.named("jobs.enqueued")
    assert {key: line[key] for key in line if key not in {"event", "log_level"}} == {
        "count": 3,
        "queue": "builds,other",
        "first_job_id": job_ids[0],
        "principal": "ann",
        "batching": asdict(BatchingConfig(flush_interval_seconds=7)),
    }
    each = logs.named("job.enqueued")
    assert [(line["job_id"], line["request_id"]) for line in each] == [
        (job_id, request.request_id) for job_id, request in zip(job_ids, requests, strict=True)
    ]
    assert logs.at("debug") == ["job.enqueued"] * 3


async def test_what_adds_nothing_is_not_logged(services: Services, logs: Logs) -> None:
    await enqueue(services, make_request(request_id=REQUEST_ID))
    await enqueue(services, make_request(request_id=REQUEST_ID))
    await enqueue(services, make_request("no such name"), make_request(command="another"))
    assert [line["count"] for line in logs.named("jobs.enqueued")] == [1, 1]


async def test_a_retry_names_both_jobs(services: Services, logs: Logs) -> None:
    (job_id,) = await enqueue(services, make_request())
    with pytest.raises(FailedPrecondition):
        await services.jobs.retry_job(job_id, REQUEST_ID)
    held = await claim(services)
    await services.jobs.complete_jobs([CompleteRequest(task_token=held.task_token, result=make_success())])
    copy = await services.jobs.retry_job(job_id, REQUEST_ID)
    assert (await services.jobs.retry_job(job_id, REQUEST_ID)).job_id == copy.job_id
    (line,) = logs.named("job.retried")
    assert (line["job_id"], line["retried_from"], line["queue"], line["principal"]) == (
        copy.job_id,
        job_id,
        "builds",
        "ann",
    )
    assert logs.at("info") == ["jobs.enqueued", "job.retried"]
    assert len(logs.named("job.enqueued")) == 2


async def test_a_cancellation_is_logged_where_it_changes_something(
    services: Services, clock: ManualClock, logs: Logs
) -> None:
    running, queued = await enqueue(services, make_request(), make_request())
    await claim(services)
    for job_id in (running, queued):
        await services.jobs.cancel_job(job_id)
    clock.advance(1)
    await services.jobs.cancel_job(queued)
    told = [(line["job_id"], line["state"], line["principal"]) for line in logs.named("job.cancelled")]
    assert told == [(running, "running", "ann"), (queued, "cancelled", "ann")]


async def test_pausing_and_resuming_name_the_queue(services: Services, logs: Logs) -> None:
    await services.jobs.set_paused("builds", paused=True)
    await services.jobs.set_paused("builds", paused=False)
    with pytest.raises(InvalidArgument):
        await services.jobs.set_paused("no such name", paused=True)
    assert logs.at("info") == ["queue.paused", "queue.resumed"]
    assert {(line["queue"], line["principal"]) for line in logs.all} == {("builds", "ann")}


async def test_keys_are_logged_without_what_opens_them(services: Services, logs: Logs) -> None:
    key = ApiKey(
        key_id="k1",
        name="bob",
        secret_hash=b"hash",
        scopes=frozenset({"worker"}),
        queues=frozenset({"builds"}),
    )
    await services.admin.create_key(key)
    assert await services.admin.revoke_key("k1", 5)
    assert not await services.admin.revoke_key("unknown", 5)
    (created,), (revoked,) = logs.named("key.created"), logs.named("key.revoked")
    assert (created["key_id"], created["name"], created["scopes"], created["queues"]) == (
        "k1",
        "bob",
        ["worker"],
        ["builds"],
    )
    assert revoked["key_id"] == "k1"
    assert "hash" not in str(created)


async def test_a_replay_is_logged_once_for_a_stream(
    services: Services, clock: ManualClock, logs: Logs
) -> None:
    (job_id,) = await enqueue(services, make_request())
    held = await claim(services)
    for first in range(1, 200, 2):
        await services.events.publish_events(held.task_token, [make_batch(first, first + 1)])
    async with aclosing(
        services.events.stream_events(StreamRequest(job_id=job_id, from_sequence=11))
    ) as stream:
        assert [(await anext(stream)).sequence for _ in range(190)][-1] == 200
        await services.events.publish_events(held.task_token, [make_batch(201, 201)])
        assert (await anext(stream)).sequence == 201
        last = asyncio.create_task(anext(stream))
        await until(lambda: clock.waiting == 2)
        await services.events.publish_events(held.task_token, [make_batch(202, 202)])
        assert (await last).sequence == 202
    (line,) = logs.named("stream.replayed")
    assert (line["job_id"], line["principal"], line["log_level"]) == (job_id, "ann", "debug")
    assert (line["from_attempt"], line["from_sequence"]) == (1, 11)
    assert (line["last_attempt"], line["last_sequence"]) == (1, 200)


async def test_at_info_only_calls_are_logged(
    services: Services, logs: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_info = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    monkeypatch.setattr(call_log, "_log", at_info)
    (job_id,) = await enqueue(services, make_request())
    await services.jobs.cancel_job(job_id)
    assert [line["event"] for line in logs.all] == ["jobs.enqueued", "job.cancelled"]


@pytest.mark.parametrize("knows_levels", [True, False])
async def test_no_call_fails_because_of_its_log_line(
    services: Services, monkeypatch: pytest.MonkeyPatch, knows_levels: bool
) -> None:
    class FullDisk:
        def is_enabled_for(self, _level: int) -> bool:
            if not knows_levels:
                raise AttributeError("a logger of somebody else")
            return True

        def log(self, _level: int, event: str, **_: object) -> None:
            raise OSError(f"no space left on device for {event}")

    monkeypatch.setattr(call_log, "_log", FullDisk())
    (job_id,) = await enqueue(services, make_request())
    await services.jobs.cancel_job(job_id)
    await services.jobs.retry_job(job_id, REQUEST_ID)
    await services.jobs.set_paused("builds", paused=True)
    request = StreamRequest(job_id=job_id, follow=False)
    assert [event async for event in services.events.stream_events(request)] == []
    call_log.write_waiting()
    assert not call_log._waiting.take()


async def test_a_line_is_written_after_the_answer_and_by_itself(services: Services) -> None:
    with structlog.testing.capture_logs() as lines:
        await services.jobs.set_paused("builds", paused=True)
        assert lines == []
        await until(lambda: [line["event"] for line in lines] == ["queue.paused"])


async def test_a_server_ends_with_its_lines_written(clock: ManualClock) -> None:
    with structlog.testing.capture_logs() as lines:
        async with make_services(MemoryStore(clock), clock) as opened:
            await opened.jobs.set_paused("builds", paused=True)
        assert "queue.paused" in [line["event"] for line in lines]


@pytest.mark.parametrize("broken", ["write", "flush"])
def test_a_log_that_cannot_be_written_stops_nobody(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def fail(*_: object) -> None:
        calls.append(broken)
        raise OSError("no space left on device")

    stderr = StringIO()
    monkeypatch.setattr(stderr, broken, fail)
    monkeypatch.setattr(sys, "stderr", stderr)
    telemetry.set_up_logs("info", "json")
    structlog.get_logger().warning("something.failed")
    assert calls
