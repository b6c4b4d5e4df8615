"""What a server takes on, counted on a clock that a test moves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from airunner import telemetry
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.answers import Enqueued
from airunner.domain.errors import Overloaded
from airunner.domain.job import JobState
from airunner.domain.requests import CompleteRequest, DequeueRequest, ReleaseRequest, UpdateRequest
from airunner.rpc.auth import METHOD_SCOPES
from airunner.rpc.entrance import STREAMING_CALLS
from airunner.services.admission import VITAL_CALLS, Admission, AdmissionLimits, RequestBody
from airunner.services.composition import ServiceRules, Services
from airunner.services.rates import network_of
from airunner.stores.memory import MemoryStore
from airunner.stores.sqlite import SqliteStore
from airunner.telemetry.refusals import CallRefusal
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import NEVER_SECONDS, make_line, make_request, make_services, make_success

DAY_SECONDS = 24 * 3600
MEBIBYTE = 1024 * 1024


def limited(**limits: Any) -> Admission:
    return Admission(AdmissionLimits(**limits), ManualClock())


def rules(**limits: Any) -> ServiceRules:
    return ServiceRules(admission=AdmissionLimits(**limits), maintenance_interval_seconds=NEVER_SECONDS)


def refusals(reason: CallRefusal) -> float:
    return telemetry.calls_refused.read().get((reason.value,), 0)


def test_the_tables_of_calls_are_whole() -> None:
    methods = [m for service in pb.DESCRIPTOR.services_by_name.values() for m in service.methods]
    streaming = {method.name for method in methods if method.client_streaming or method.server_streaming}
    assert streaming | {"StreamGeneration", "StreamGenerations"} == STREAMING_CALLS
    # Of what workers call, only a dequeue may come later.
    of_workers = {name for name, scope in METHOD_SCOPES.items() if scope == "worker"}
    assert of_workers - VITAL_CALLS == {"DequeueJob", "DequeueJobs"}
    assert of_workers >= VITAL_CALLS


def test_a_principal_has_a_rate_and_what_jobs_live_by_has_none() -> None:
    clock = ManualClock()
    admission = Admission(AdmissionLimits(calls_per_second=10, call_burst=20), clock)
    before = refusals(CallRefusal.RATE)
    for _ in range(20):
        admission.check_rate("ann", "EnqueueJobs")
    with pytest.raises(Overloaded, match="10 calls a second") as refused:
        admission.check_rate("ann", "ListJobs")
    assert refused.value.retry_after_seconds == pytest.approx(0.1)
    assert refusals(CallRefusal.RATE) == before + 1
    admission.check_rate("bob", "ListJobs")
    for method in VITAL_CALLS:
        for _ in range(100):
            admission.check_rate("ann", method)
    clock.advance(0.1)
    admission.check_rate("ann", "ListJobs")


def test_the_default_rate_is_5000_a_second_and_20000_at_once() -> None:
    clock = ManualClock()
    admission = Admission(AdmissionLimits(), clock)

    def allowed() -> int:
        count = 0
        while True:
            try:
                admission.check_rate("ann", "GetJob")
            except Overloaded:
                return count
            count += 1

    assert allowed() == 20_000
    clock.advance(1)
    assert allowed() == 5_000


def test_a_rate_of_zero_is_none() -> None:
    admission = limited(calls_per_second=0, failed_keys_per_minute=0)
    for _ in range(30_000):
        admission.check_rate("ann", "ListJobs")
    for _ in range(100):
        admission.count_failed_key("192.0.2.7")
    admission.check_address("192.0.2.7", unless=lambda: False)


def test_wrong_keys_are_counted_for_each_address() -> None:
    clock = ManualClock()
    admission = Admission(AdmissionLimits(), clock)
    for _ in range(20):
        admission.check_address("2001:db8::1", unless=lambda: False)
        admission.count_failed_key("2001:db8::1")
    with pytest.raises(Overloaded, match="wrong API keys") as refused:
        admission.check_address("2001:db8::2", unless=lambda: False)
    assert refused.value.retry_after_seconds == 3
    # A key that was good lately, another network, and a caller without an address.
    admission.check_address("2001:db8::2", unless=lambda: True)
    admission.check_address("2001:db8:0:1::2", unless=lambda: False)
    admission.check_address("", unless=lambda: False)
    clock.advance(3)
    admission.check_address("2001:db8::2", unless=lambda: False)
    assert network_of("2001:db8::1") == network_of("2001:db8::2")


def test_bytes_of_requests_are_bounded_and_the_last_quarter_is_for_jobs_that_run() -> None:
    admission = limited(max_body_bytes=4 * MEBIBYTE)
    bodies = [RequestBody(admission, "EnqueueJobs") for _ in range(3)]
    for body in bodies:
        body.add(MEBIBYTE)
    with pytest.raises(Overloaded, match="bytes of requests"):
        RequestBody(admission, "EnqueueJobs").add(1)
    with pytest.raises(Overloaded):
        admission.check_body(1, "ListJobs")
    completing = RequestBody(admission, "CompleteJobs")
    completing.add(MEBIBYTE)
    with pytest.raises(Overloaded):
        completing.add(1)
    completing.forget()
    completing.forget()
    bodies[0].forget()
    bodies[0].add(MEBIBYTE)
    for body in bodies:
        body.forget()
    assert admission.body_bytes == 0


def test_streams_are_bounded_together_and_for_each_principal() -> None:
    admission = limited(max_streams=3, max_streams_per_principal=2)
    of_ann = [admission.open_stream("ann") for _ in range(2)]
    with pytest.raises(Overloaded, match="this principal"):
        admission.open_stream("ann")
    of_bob = admission.open_stream("bob")
    with pytest.raises(Overloaded, match="too many streams are open"):
        admission.open_stream("cyd")
    of_bob.close()
    of_bob.close()
    assert admission.streams == 2
    admission.open_stream("cyd").close()
    for stream in of_ann:
        stream.close()
    admission.open_stream("ann").close()
    assert admission.streams == 0


def test_refusals_are_logged_once_a_minute() -> None:
    clock = ManualClock()
    admission = Admission(AdmissionLimits(max_waiting_calls=0), clock)

    def refuse() -> None:
        with pytest.raises(Overloaded), admission.wait():
            pass

    with capture_logs() as lines:
        for _ in range(3):
            refuse()
        clock.advance(59)
        refuse()
        clock.advance(1)
        refuse()
        clock._now -= 3_600_000
        refuse()
    assert [(line["event"], line["waiting_calls"]) for line in lines] == [
        ("calls.refused", 1),
        ("calls.refused", 4),
        ("calls.refused", 1),
    ]


async def test_calls_that_wait_are_bounded() -> None:
    clock = ManualClock()
    async with make_services(MemoryStore(clock), clock, rules(max_waiting_calls=2)) as services:
        jobs, admission = services.jobs, services.admission
        job_id = (await enqueue(services)).job_id
        (held,) = await jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        dequeuing = asyncio.create_task(jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=20)))
        getting = asyncio.create_task(jobs.get_job(job_id, wait_seconds=60))
        await until(lambda: admission.waiting == 2)
        with pytest.raises(Overloaded, match="too many calls wait") as refused:
            await jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=20))
        assert refused.value.retry_after_seconds == 1
        with pytest.raises(Overloaded):
            await jobs.get_job(job_id, wait_seconds=1)
        # What does not wait is not refused, and what extends only does not wait.
        assert (await jobs.get_job(job_id)).state is JobState.RUNNING
        assert not await jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        clock.advance(10)
        update = UpdateRequest(queue="builds", task_token=held.task_token, wait_seconds=60)
        answer = await jobs.update_job(update)
        assert answer.visible_until == clock.now() + 300_000
        await complete(services, held.task_token)
        await getting
        assert admission.waiting == 1
        dequeuing.cancel()
        await asyncio.wait({dequeuing})
        assert admission.waiting == 0


async def test_waits_that_fail_or_are_cut_short_are_counted_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a surprise")

    clock = ManualClock()
    async with make_services(MemoryStore(clock), clock) as services:
        job_id = (await enqueue(services)).job_id
        (held,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=0))
        update = UpdateRequest(queue="builds", task_token=held.task_token, wait_seconds=60)
        waiting: list[asyncio.Task[Any]] = [
            asyncio.create_task(services.jobs.get_job(job_id, wait_seconds=60)),
            asyncio.create_task(services.jobs.update_job(update)),
            asyncio.create_task(services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=20))),
        ]
        await until(lambda: services.admission.waiting == 3)
        await services.stop()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert services.admission.waiting == 0
    async with make_services(MemoryStore(clock), clock) as services:
        monkeypatch.setattr(MemoryStore, "get_job", broken)
        monkeypatch.setattr(MemoryStore, "dequeue_jobs", broken)
        for call in (
            services.jobs.get_job(job_id, wait_seconds=60),
            services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=20)),
        ):
            with pytest.raises(RuntimeError):
                await call
        assert services.admission.waiting == 0


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[ManualClock], Any]:
    if request.param == "memory":
        return MemoryStore
    return lambda clock: SqliteStore(tmp_path, clock)


async def test_names_of_queues_are_bounded(store: Callable[[ManualClock], Any]) -> None:
    clock = ManualClock()
    async with make_services(store(clock), clock, rules(max_queue_names=3)) as services:
        for name in ("a", "b"):
            assert isinstance(await enqueue(services, name), Enqueued)
        await services.jobs.set_paused("c", paused=True)
        refused = await services.jobs.enqueue_jobs([make_request("d"), make_request("a"), make_request("c")])
        assert isinstance(refused[0], Overloaded)
        assert refused[0].retry_after_seconds == 60
        assert all(isinstance(outcome, Enqueued) for outcome in refused[1:])
        with pytest.raises(Overloaded, match="there are 3 queues already"):
            await services.jobs.set_paused("d", paused=True)
        assert set(await services.store.queue_names()) == {"a", "b", "c"}


async def test_a_queue_that_is_gone_makes_room(store: Callable[[ManualClock], Any]) -> None:
    clock = ManualClock()
    async with make_services(store(clock), clock, rules(max_queue_names=1)) as services:
        job = await enqueue(services, "a")
        await services.jobs.cancel_job(job.job_id)
        clock.advance(8 * DAY_SECONDS)
        await services.maintenance.run_once()
        assert isinstance(await enqueue(services, "b"), Enqueued)
        assert isinstance(await enqueue(services, "a"), Overloaded)


async def test_queues_of_before_a_restart_count(tmp_path: Path) -> None:
    clock = ManualClock()
    async with make_services(SqliteStore(tmp_path, clock), clock) as services:
        await enqueue(services, "a")
    async with make_services(SqliteStore(tmp_path, clock), clock, rules(max_queue_names=1)) as services:
        assert isinstance(await enqueue(services, "b"), Overloaded)
        assert isinstance(await enqueue(services, "a"), Enqueued)


async def test_names_that_cannot_be_read_keep_no_server_from_starting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(_: object) -> None:
        raise RuntimeError("a surprise")

    monkeypatch.setattr(MemoryStore, "queue_names", broken)
    clock = ManualClock()
    async with make_services(MemoryStore(clock), clock) as services:
        assert isinstance(await enqueue(services), Enqueued)


async def test_writes_that_wait_are_bounded_but_for_those_of_holders(tmp_path: Path) -> None:
    clock = ManualClock()
    store = SqliteStore(tmp_path, clock, max_waiting_writes=1)
    async with make_services(store, clock) as services:
        jobs = services.jobs
        for _ in range(3):
            await enqueue(services)
        held = await jobs.dequeue_jobs(DequeueRequest(queue="builds", max_jobs=3, wait_seconds=0))
        tokens = [job.task_token for job in held]
        with busy_disk(store) as begun:
            await until(begun)
            vital: list[asyncio.Task[Any]] = [
                asyncio.create_task(jobs.update_job(UpdateRequest(queue="builds", task_token=tokens[0]))),
                asyncio.create_task(services.events.publish_events(tokens[0], [make_line(1)])),
                asyncio.create_task(complete(services, tokens[1])),
                asyncio.create_task(jobs.release_job(ReleaseRequest(task_token=tokens[2]))),
            ]
            await until(lambda: store._writer is not None and store._writer._inbox.qsize() == len(vital))
            before = refusals(CallRefusal.WAITING_WRITES)
            with capture_logs() as lines:
                for refused in (
                    jobs.enqueue_jobs([make_request()]),
                    jobs.dequeue_jobs(DequeueRequest(queue="builds", wait_seconds=5)),
                    jobs.cancel_job(held[0].job.job_id),
                    jobs.set_paused("builds", paused=True),
                ):
                    with pytest.raises(Overloaded, match="writes wait"):
                        await refused
            assert refusals(CallRefusal.WAITING_WRITES) == before + 4
            assert [line["event"] for line in lines] == ["writes.refused"]
        await asyncio.gather(*vital)
        assert services.admission.waiting == 0
        assert isinstance(await enqueue(services), Enqueued)


@contextmanager
def busy_disk(store: SqliteStore) -> Any:
    """Let the writer stand still; yield what tells whether it does."""
    begun, go_on = threading.Event(), threading.Event()

    def stand_still(_: object) -> None:
        begun.set()
        go_on.wait()

    store._submit(stand_still)
    try:
        yield begun.is_set
    finally:
        go_on.set()


async def enqueue(services: Services, queue: str = "builds") -> Any:
    (outcome,) = await services.jobs.enqueue_jobs([make_request(queue)])
    return outcome


async def complete(services: Services, task_token: str) -> None:
    (state,) = await services.jobs.complete_jobs(
        [CompleteRequest(task_token=task_token, result=make_success())]
    )
    assert state is JobState.COMPLETED
