"""With sink `jobs`, a worker of jobs does the work of the generation queue, with the same verdicts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from airunner import telemetry
from airunner.cli.main import execute
from airunner.domain.clock import SystemClock
from airunner.domain.errors import PermanentFailure
from airunner.domain.event import EventType, Output
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import EnqueueRequest, StreamRequest
from airunner.domain.retry import RetryPolicy
from airunner.generation.gate import DatabaseGate
from airunner.generation.job_verdicts import JobVerdicts
from airunner.generation.lost import LostPass
from airunner.generation.output import LoggedOutput
from airunner.generation.sessions import SessionTable
from airunner.generation.start import PING
from airunner.generation.work import GenerationWork, WorkOptions
from airunner.handlers import Context
from airunner.handlers.capture import current_output
from airunner.handlers.loop_callbacks import LoopCallbacks
from airunner.handlers.registry import Hooks, Registry
from airunner.local.postgres import LocalPostgres
from airunner.outbox.jobs_sink import JobsSink
from airunner.outbox.rows import Sent
from airunner.outbox.table import OutboxTable
from airunner.postgres.pool import Database
from airunner.queues.base import TryAgain
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from airunner.worker.runner import AttemptEnvironment
from airunner.worker.worker import Worker, WorkerOptions
from tests.support.consumers import turns
from tests.support.generation import (
    ACCOUNTS,
    AT_ONCE,
    HOOKS,
    effects,
    enqueue,
    registry,
    until_sessions,
)
from tests.support.outbox import QUICK, make_relay, send_once
from tests.support.postgres import pass_time


@asynccontextmanager
async def job_worker(
    database: Database,
    handlers: Registry,
    *,
    concurrency: int = 4,
    grace_seconds: float = 10.0,
    **work_options: Any,
) -> AsyncIterator[Services]:
    """Run a worker of jobs whose handlers end with verdicts, over services in memory."""
    await database.execute(ACCOUNTS)
    await database.execute("DELETE FROM public.effects")
    services = make_services(MemoryStore(SystemClock()), SystemClock())
    work = GenerationWork(
        SessionTable(database, "airunner"),
        SystemClock(),
        WorkOptions(verdict_policy=QUICK, threads=concurrency, **work_options),
    )
    gate = DatabaseGate(SessionTable(database, "airunner"), SystemClock())
    verdicts = JobVerdicts(work, AT_ONCE, gate)
    options = WorkerOptions(
        queues=("generation", "q"),
        concurrency=concurrency,
        handlers=verdicts.wrap(handlers),
        closed_queues=gate.closed_queues,
        overdue_elsewhere=lambda: verdicts.overdue,
        environment=AttemptEnvironment(grace_seconds=grace_seconds),
        worker_id="w",
    )
    worker = Worker(services.jobs, services.events, SystemClock(), options)
    running = asyncio.create_task(worker.run())
    try:
        yield services
    finally:
        worker.stop()
        await running
        work.close()
        await gate.close()


async def relay(database: Database, services: Services) -> None:
    """Send what is enqueued."""
    await send_once(make_relay(OutboxTable(database, "airunner"), JobsSink(services.jobs)))


async def test_jobs_end_with_the_verdicts_that_messages_end_with(database: Database) -> None:
    tries: dict[str, list[tuple[int, bool]]] = {"slow": [], "hopeless": []}

    def paint(payload: dict[str, Any]) -> dict[str, Any]:
        return {"n": payload["n"]}

    async def slow(ctx: Context) -> str:
        tries["slow"].append((ctx.attempt, ctx.last_try))
        if ctx.attempt == 1:
            raise OSError("the provider is away")
        return "late"

    async def hopeless(ctx: Context) -> None:
        tries["hopeless"].append((ctx.attempt, ctx.last_try))
        raise OSError("the provider is gone")

    def refuse() -> None:
        raise PermanentFailure("nsfw", "no such pictures")

    handlers = registry(
        paint=(paint, HOOKS), slow=(slow, HOOKS), hopeless=(hopeless, HOOKS), refuse=(refuse, HOOKS)
    )
    async with job_worker(database, handlers) as services:
        ids = {name: await enqueue(database, name, {"n": 3}) for name in handlers}
        await relay(database, services)
        found = await until_sessions(database, done=2, failed=2)
        refs = await database.fetch("SELECT id::text, sink_ref FROM airunner.outbox")
        jobs = {row["id"]: await services.jobs.get_job(row["sink_ref"], wait_seconds=10) for row in refs}
    by_name = {row["name"]: row for row in found}
    assert json.loads(by_name["paint"]["result"]) == {"n": 3}
    assert json.loads(by_name["slow"]["result"]) == "late"
    assert (by_name["hopeless"]["code"], by_name["refuse"]["code"]) == ("exhausted", "nsfw")
    assert tries["slow"] == [(1, False), (2, False)]
    assert tries["hopeless"] == [(1, False), (2, False), (3, False), (4, False), (5, True)]
    assert sorted(await effects(database)) == sorted([
        (ids["paint"], "done"),
        (ids["slow"], "done"),
        (ids["hopeless"], "failed:exhausted"),
        (ids["refuse"], "failed:nsfw"),
    ])  # fmt: skip
    states = {name: jobs[session_id].state for name, session_id in ids.items()}
    assert states["paint"] is states["slow"] is JobState.COMPLETED
    assert states["hopeless"] is states["refuse"] is JobState.FAILED


async def test_a_job_whose_handler_goes_on_after_its_deadline_hears_no_more_of_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up, may_end, free = asyncio.Event(), asyncio.Event(), threading.Event()
    contexts: list[Context] = []

    async def wait(*_: object) -> None:
        given_up.set()
        await may_end.wait()

    def paint(ctx: Context) -> None:
        contexts.append(ctx)
        if ctx.attempt == 1:
            ctx.output.write("before, without an end", is_stderr=False)
            free.wait(60)

    # So long the job goes on, though nobody waits for its handler.
    monkeypatch.setattr(SessionTable, "note_error", wait)
    async with job_worker(database, registry(paint=paint), deadline_seconds=0.1) as services:
        await enqueue(database, "paint")
        await relay(database, services)
        await given_up.wait()
        contexts[0].log("late")
        may_end.set()
        await until_sessions(database, done=1)
        free.set()
        request = StreamRequest(job_id=contexts[0].job_id, event_filter=frozenset({EventType.OUTPUT_DATA}))
        events = [event async for event in services.events.stream_events(request)]
    printed = [event.data.output for event in events if isinstance(event.data, Output)]
    assert printed == [b"before, without an end"]


async def test_a_handler_that_goes_on_after_its_deadline_keeps_its_slot(database: Database) -> None:
    free = threading.Event()

    def hang(ctx: Context) -> None:
        if ctx.attempt == 1:
            free.wait(60)

    async with job_worker(database, registry(hang=hang), concurrency=1, deadline_seconds=0.1) as services:
        await enqueue(database, "hang")
        await relay(database, services)
        await until(lambda: telemetry.handlers_overdue.read()[()] == 1)
        (row,) = await database.fetch("SELECT sink_ref FROM airunner.outbox")
        async with asyncio.timeout(20):
            while (job := await services.jobs.get_job(row["sink_ref"])).state is not JobState.SCHEDULED:
                await turns()
        await turns()
        assert await services.jobs.get_job(row["sink_ref"]) == job, "nobody takes it, though it is due"
        free.set()
        (found,) = await until_sessions(database, done=1)
        assert telemetry.handlers_overdue.read()[()] == 0
    assert found["attempts"] == 2


@pytest.mark.parametrize("is_good", [True, False])
async def test_a_handler_that_ends_since_its_job_is_cancelled_gives_no_verdict(
    database: Database, is_good: bool
) -> None:
    begun = threading.Event()

    def paint(ctx: Context) -> str:
        begun.set()
        ctx.wait(60)
        if not is_good:
            raise PermanentFailure("half", "a half picture")
        return "half a picture"

    handlers = registry(paint=(paint, HOOKS))
    async with job_worker(database, handlers) as services:
        session_id = await enqueue(database, "paint")
        await relay(database, services)
        await until(begun.is_set)
        (row,) = await database.fetch("SELECT sink_ref FROM airunner.outbox")
        await services.jobs.cancel_job(row["sink_ref"])
        job = await services.jobs.get_job(row["sink_ref"], wait_seconds=10)
        assert job.state is JobState.CANCELLED
        await until_sessions(database, running=1)
        await pass_time(database, seconds=65)
        assert await LostPass(database, "airunner", handlers, jobs=services.jobs).run_once() == 1
    assert await effects(database) == [(session_id, "failed:lost")]


async def test_a_job_that_is_cancelled_while_postgresql_is_away_is_not_begun(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, calls, asked, may_answer = SessionTable.begin, list[int](), asyncio.Event(), asyncio.Event()

    async def begin_late(*values: Any, **named: Any) -> Any:
        asked.set()
        await may_answer.wait()
        return await begin(*values, **named)

    monkeypatch.setattr(SessionTable, "begin", begin_late)
    async with job_worker(database, registry(paint=lambda: calls.append(1)), grace_seconds=0.1) as services:
        await enqueue(database, "paint")
        await relay(database, services)
        await asked.wait()
        (row,) = await database.fetch("SELECT sink_ref FROM airunner.outbox")
        await services.jobs.cancel_job(row["sink_ref"])
        job = await services.jobs.get_job(row["sink_ref"], wait_seconds=10)
        assert (job.state, telemetry.handlers_overdue.read()[()]) == (JobState.CANCELLED, 1)
        may_answer.set()
        await until(lambda: telemetry.handlers_overdue.read()[()] == 0)
    assert calls == []
    await until_sessions(database, running=1)


async def test_the_job_of_an_async_handler_that_is_cancelled_is_over_when_the_handler_is(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airunner.generation.work._GRACE_SECONDS", 60)
    begun, cancelled, free = (threading.Event() for _ in range(3))
    running: list[int] = []

    async def paint(payload: dict[str, int], ctx: Context) -> None:
        running.append(payload["n"])
        begun.set()
        try:
            await asyncio.sleep(60 if payload["n"] == 1 else 0)
        finally:
            cancelled.set()
            await asyncio.to_thread(free.wait, 60)
            ctx.log("cleaned up")
            running.remove(payload["n"])

    async with job_worker(database, registry(paint=paint), concurrency=1) as services:
        first = await enqueue(database, "paint", {"n": 1})
        await relay(database, services)
        await until(begun.is_set)
        await enqueue(database, "paint", {"n": 2})
        await relay(database, services)
        rows = await database.fetch("SELECT sink_ref FROM airunner.outbox WHERE id = $1::text::uuid", first)
        await services.jobs.cancel_job(rows[0]["sink_ref"])
        await until(cancelled.is_set)
        for _ in range(100):
            await turns()
            assert running == [1], "it has the only slot"
        free.set()
        await until_sessions(database, running=1, done=1)
        request = StreamRequest(job_id=rows[0]["sink_ref"], event_filter=frozenset({EventType.OUTPUT_DATA}))
        events = [event async for event in services.events.stream_events(request)]
    assert [event.data.output for event in events if isinstance(event.data, Output)] == [b"cleaned up\n"]


async def test_what_a_hook_prints_waits_for_no_room_in_the_output_of_the_job(database: Database) -> None:
    outputs: dict[str, object] = {}

    async def capture(connection: Any, session: Any, result: Any) -> None:
        # On the worker's loop, which alone makes room for the output of jobs.
        outputs[session.name] = current_output.get()

    def paint() -> None: ...

    async def paint_async() -> None: ...

    hooks = Hooks(on_success=capture)
    async with job_worker(
        database, registry(paint=(paint, hooks), paint_async=(paint_async, hooks))
    ) as services:
        for name in ("paint", "paint_async"):
            await enqueue(database, name)
        await relay(database, services)
        await until_sessions(database, done=2)
    assert outputs == {"paint": None, "paint_async": None}


async def test_a_worker_of_jobs_has_the_handler_of_every_generation_worker(database: Database) -> None:
    async with job_worker(database, registry()) as services:
        await enqueue(database, PING, {"n": 3})
        await relay(database, services)
        (row,) = await until_sessions(database, done=1)
    assert json.loads(row["result"]) == {"n": 3}


async def test_a_job_that_nobody_here_handles_waits_for_who_does(database: Database) -> None:
    async with job_worker(database, registry()) as services:
        for name in ("unknown", PING):
            await enqueue(database, name, {})
        await relay(database, services)
        await until_sessions(database, done=1, queued=1)
        rows = await database.fetch("SELECT sink_ref FROM airunner.outbox WHERE name = 'unknown'")
        waiting = await services.jobs.get_job(rows[0]["sink_ref"])
        assert (waiting.state, waiting.attempt) == (JobState.SCHEDULED, 0)


async def test_jobs_of_other_queues_are_as_they_were(database: Database) -> None:
    calls: list[int] = []

    def note(payload: dict[str, int]) -> None:
        calls.append(payload["n"])

    async with job_worker(database, registry(note=(note, HOOKS))) as services:
        await enqueue(database, "note", {"n": 1}, queue="q")
        await relay(database, services)
        await until(lambda: calls == [1])
    assert await effects(database) == []


async def test_while_postgresql_is_dead_jobs_that_end_there_are_not_dequeued(
    postgres: LocalPostgres, database: Database
) -> None:
    calls: list[int] = []

    def note(payload: dict[str, int]) -> None:
        calls.append(payload["n"])

    async with job_worker(database, registry(note=(note, HOOKS))) as services:
        ids = [await enqueue(database, "note", {"n": number}) for number in (1, 2)]
        rows = {row.row_id: row for row in await OutboxTable(database, "airunner").claim(10)}
        sink = JobsSink(services.jobs)
        await sink.send("generation", [rows[ids[0]]])
        await until_sessions(database, done=1, queued=1)

        async def do_another() -> None:
            """Have a job of another queue done: whoever waited for jobs asks once more whether it may."""
            done = len(calls)
            params = JobParams(handler="note", payload_json=json.dumps({"n": 0}))
            await services.jobs.enqueue_jobs(
                [EnqueueRequest(request_id=str(uuid4()), queue="q", params=params)]
            )
            await until(lambda: len(calls) > done)

        postgres.kill()
        try:
            with capture_logs() as logs:
                while not any(entry["event"] == "worker.loop_error" for entry in logs):
                    await do_another()
            for _ in range(3):
                await do_another()
            (sent,) = await sink.send("generation", [rows[ids[1]]])
            await do_another()
            assert isinstance(sent, Sent)
            waiting = await services.jobs.get_job(sent.reference)
            assert (waiting.state, waiting.attempt) == (JobState.SCHEDULED, 0)
        finally:
            postgres.start()
        await until(lambda: calls[-1] == 2, limit_seconds=60)
        await until_sessions(database, done=2)
    assert sorted(await effects(database)) == sorted((session_id, "done") for session_id in ids)


class SilentSessions:
    """Sessions of a database that does not answer until it is told to."""

    def __init__(self) -> None:
        self.questions = 0
        self.may_answer = asyncio.Event()

    async def answers(self) -> None:
        self.questions += 1
        await self.may_answer.wait()


async def test_a_database_that_hangs_holds_up_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airunner.generation.gate._ANSWER_SECONDS", 0.02)
    sessions, clock = SilentSessions(), ManualClock()
    gate = DatabaseGate(cast("SessionTable", sessions), clock)
    assert await gate.closed_queues() == ("generation",)
    assert (await gate.closed_queues(), gate.is_closed) == (("generation",), True)
    assert sessions.questions == 1
    clock.advance(1)
    sessions.may_answer.set()
    # Those who serve other queues do not wait for the answer.
    assert await gate.closed_queues() == ("generation",)
    await until(lambda: sessions.questions == 2)
    assert (await gate.closed_queues(), gate.is_closed) == ((), False)
    await gate.close()


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 30), (3, 120), (9, 900)])
async def test_the_pause_before_the_next_try_is_that_of_generation(
    database: Database, attempt: int, seconds: int
) -> None:
    async def paint() -> None:
        raise OSError("the provider is away")

    session_id = await enqueue(database, "paint")
    sessions = SessionTable(database, "airunner")
    work = GenerationWork(sessions, SystemClock(), WorkOptions())
    policy = RetryPolicy(first_seconds=30, max_seconds=900, jitter=0)
    verdicts = JobVerdicts(work, policy, DatabaseGate(sessions, SystemClock()))
    wrapped = verdicts.wrap(registry(paint=paint))["paint"]
    output = LoggedOutput(LoopCallbacks(asyncio.get_running_loop()), session_id, "paint")
    context = Context(job_id="job", queue="generation", attempt=attempt, request_id=session_id, output=output)
    with pytest.raises(TryAgain, match="the provider is away") as raised:
        await wrapped.function("{}", context)
    assert raised.value.delay_seconds == seconds
    work.close()


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({}, "postgres.dsn"),
        (
            {"AIRUNNER_POSTGRES__DSN": "postgresql://u@h/d", "AIRUNNER_WORKER__HANDLER_PROCESSES": "1"},
            "worker.handler_processes",
        ),
        (
            {"AIRUNNER_POSTGRES__DSN": "postgresql://u@h/d", "AIRUNNER_OUTBOX__SINK": "sqs"},
            "outbox.sink: must be jobs",
        ),
    ],
)
async def test_a_worker_that_cannot_write_verdicts_does_not_start(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    variables: dict[str, str],
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handlers.py").write_text("from airunner import handler\n\n@handler('a')\ndef a(): ...\n")
    for name, value in {"AIRUNNER_OUTBOX__SINK": "jobs", **variables}.items():
        monkeypatch.setenv(name, value)
    arguments = ["worker", "--queue", "generation", "--handlers", str(tmp_path / "handlers.py")]
    code = await asyncio.to_thread(execute, arguments)
    assert code == 2
    assert named in capsys.readouterr().err
