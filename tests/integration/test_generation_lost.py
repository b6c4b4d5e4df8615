"""Work that nobody tells the end of: it is lost, and compensated, once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from airunner.domain.clock import SystemClock
from airunner.domain.errors import NotFound, PermissionDenied, Unavailable
from airunner.domain.job import JobState
from airunner.generation.lost import LostPass, Steadiness
from airunner.generation.sessions import SessionTable
from airunner.generation.verdict import Success
from airunner.generation.work import WorkOptions
from airunner.handlers.registry import Hooks
from airunner.postgres.pool import Database
from airunner.queues.memory import MemoryQueue
from airunner.testing.clock import ManualClock
from tests.support.generation import ACCOUNTS, HOOKS, effects, enqueue, registry, send_all
from tests.support.postgres import pass_time, rows_of

SESSIONS = "generation_sessions"
LOST_SECONDS = WorkOptions().lost_seconds


@pytest.fixture
async def sessions(database: Database) -> SessionTable:
    await database.execute(ACCOUNTS)
    await database.execute("DELETE FROM public.effects")
    return SessionTable(database, "airunner")


def lost_pass(database: Database, **options: Any) -> LostPass:
    return LostPass(database, "airunner", registry(paint=(lambda: None, HOOKS)), **options)


async def test_the_last_try_that_died_is_lost_when_nobody_can_hold_it_any_more(
    database: Database, sessions: SessionTable
) -> None:
    lost = await enqueue(database, "paint")
    retried = await enqueue(database, "paint")
    done = await enqueue(database, "paint")
    foreign = await enqueue(database, "other")
    await sessions.begin(lost, 5, last_try=True, lost_seconds=LOST_SECONDS)
    await sessions.begin(retried, 4, last_try=False, lost_seconds=LOST_SECONDS)
    await sessions.begin(done, 5, last_try=True, lost_seconds=LOST_SECONDS)
    await sessions.begin(foreign, 5, last_try=True, lost_seconds=LOST_SECONDS)
    await sessions.settle(done, Success(result_json="1"), HOOKS)
    lost_work = lost_pass(database)
    await pass_time(database, seconds=LOST_SECONDS - 5)
    assert await lost_work.run_once() == 0
    await pass_time(database, seconds=LOST_SECONDS + 5)
    assert await lost_work.run_once() == 1
    assert await lost_work.run_once() == 0
    states = {str(row["id"]): (row["state"], row["code"]) for row in await rows_of(database, "*", SESSIONS)}
    assert states == {
        lost: ("failed", "lost"),
        retried: ("running", ""),
        done: ("done", ""),
        foreign: ("running", ""),
    }
    assert sorted(await effects(database)) == sorted([(done, "done"), (lost, "failed:lost")])
    # A worker that comes back with its result is told that there is a verdict.
    assert not await sessions.settle(lost, Success(result_json="1"), HOOKS)


async def test_another_try_of_a_copy_puts_it_off(database: Database, sessions: SessionTable) -> None:
    session_id = await enqueue(database, "paint")
    await sessions.begin(session_id, 5, last_try=True, lost_seconds=LOST_SECONDS)
    await pass_time(database, seconds=LOST_SECONDS + 5)
    await sessions.begin(session_id, 1, last_try=False, lost_seconds=LOST_SECONDS)
    assert await lost_pass(database).run_once() == 0
    await pass_time(database, seconds=2 * LOST_SECONDS + 10)
    assert await lost_pass(database).run_once() == 1


@pytest.mark.parametrize("error", [KeyError("credits"), asyncio.CancelledError()], ids=repr)
async def test_a_compensation_that_fails_keeps_no_other_waiting(
    database: Database, sessions: SessionTable, error: BaseException
) -> None:
    async def fail(connection: Any, session: Any, failure: Any) -> None:
        raise error

    for name in ("broken", "paint"):
        await sessions.begin(await enqueue(database, name), 5, last_try=True, lost_seconds=LOST_SECONDS)
    handlers = registry(paint=(lambda: None, HOOKS), broken=(lambda: None, Hooks(compensate=fail)))
    await pass_time(database, seconds=LOST_SECONDS + 5)
    with capture_logs() as logs:
        assert await LostPass(database, "airunner", handlers).run_once() == 1
    assert [entry["handler"] for entry in logs if entry["event"] == "verdict.failed"] == ["broken"]
    assert [what for _, what in await effects(database)] == ["failed:lost"]


async def test_nothing_is_lost_before_the_database_has_answered_for_ten_minutes(
    database: Database, sessions: SessionTable
) -> None:
    await sessions.begin(await enqueue(database, "paint"), 5, last_try=True, lost_seconds=LOST_SECONDS)
    await pass_time(database, seconds=LOST_SECONDS + 5)
    clock = ManualClock()
    breaking = Breaking(database)
    steadiness = Steadiness(breaking, clock)  # type: ignore[arg-type]  # it has what is asked of it
    lost_work = lost_pass(database, steadiness=steadiness)

    async def answer_for(seconds: int) -> None:
        await steadiness.run_once()
        for _ in range(0, seconds, 5):
            clock.advance(5)
            await steadiness.run_once()

    assert await lost_work.run_once() == 0
    await answer_for(595)
    assert await lost_work.run_once() == 0
    breaking.is_away = True
    with pytest.raises(Unavailable):
        await steadiness.run_once()
    breaking.is_away = False
    await answer_for(595)
    assert await lost_work.run_once() == 0
    # Nobody knows what happened while this process was held up: neither before it asks again nor after.
    clock.advance(3600)
    assert await lost_work.run_once() == 0
    await answer_for(595)
    assert await lost_work.run_once() == 0
    # One that was started a moment ago may have been away until then.
    clock.advance(5)
    breaking.uptime = 10.0
    await steadiness.run_once()
    assert await lost_work.run_once() == 0
    breaking.uptime = 10_000.0
    await steadiness.run_once()
    assert await lost_work.run_once() == 1


@dataclass(slots=True)
class Breaking:
    database: Database
    is_away: bool = False
    uptime: float = 10_000.0

    async def fetch_value(self, statement: str) -> float:
        if self.is_away:
            raise Unavailable("away")
        await self.database.fetch_value(statement)
        return self.uptime


@dataclass(slots=True)
class Jobs:
    """The states of jobs; of one that is purged there is none."""

    states: dict[str, JobState] = field(default_factory=dict)

    async def get_job(self, job_id: str, *, abridge: bool) -> Any:
        assert abridge, "the payloads of a job may be gone"
        if job_id == "refused":
            raise PermissionDenied("not this one")
        assert not job_id.startswith("sqs:"), "no job at all"
        if job_id not in self.states:
            raise NotFound
        return FoundJob(self.states[job_id])


@dataclass(slots=True)
class FoundJob:
    state: JobState


async def test_rows_whose_job_ended_without_a_verdict_are_lost(
    database: Database, sessions: SessionTable
) -> None:
    # The oldest one cannot be asked for, and the next was sent while the sink was another.
    names = ("refused", "sqs:message", "failed", "purged", "running", "done")
    ids = {name: await enqueue(database, "paint") for name in names}
    await send_all(database, MemoryQueue(SystemClock()))
    for name, session_id in ids.items():
        await database.execute(
            "UPDATE airunner.outbox SET sink_ref = $1 WHERE id::text = $2", name, session_id
        )
    await sessions.settle(ids["done"], Success(), HOOKS)
    jobs = Jobs({"failed": JobState.FAILED, "running": JobState.RUNNING, "done": JobState.COMPLETED})
    await pass_time(database, minutes=2)
    assert await lost_pass(database, jobs=jobs).run_once() == 2
    assert await lost_pass(database, jobs=jobs).run_once() == 0
    codes = {str(row["id"]): row["code"] for row in await rows_of(database, "*", SESSIONS)}
    assert {name: codes[session_id] for name, session_id in ids.items()} == {
        "refused": "",
        "sqs:message": "",
        "failed": "lost",
        "purged": "lost",
        "running": "",
        "done": "",
    }


async def test_rows_that_were_sent_together_are_all_looked_at(
    database: Database, sessions: SessionTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airunner.generation.lost._PORTION", 2)
    ids = sorted([await enqueue(database, "paint") for _ in range(5)])
    await send_all(database, MemoryQueue(SystemClock()))
    await database.execute("UPDATE airunner.outbox SET sink_ref = id::text")
    jobs = Jobs(dict.fromkeys(ids[:4], JobState.RUNNING))
    await pass_time(database, minutes=2)
    assert await lost_pass(database, jobs=jobs).run_once() == 1
