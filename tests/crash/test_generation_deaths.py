"""Generation workers that die at every call to PostgreSQL and SQS: each row has its effect exactly once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.domain.clock import SystemClock
from airunner.domain.errors import PermanentFailure
from airunner.domain.retry import RetryPolicy
from airunner.generation.lost import LostPass
from airunner.generation.sessions import SessionTable
from airunner.generation.source import GenerationSource
from airunner.generation.work import GenerationWork, WorkOptions, WorkTry
from airunner.handlers import Context
from airunner.handlers.registry import Registry
from airunner.postgres.pool import Database, PostgresOptions
from airunner.queues.base import TryAgain
from airunner.queues.messages import NewMessage
from airunner.queues.sqs import SqsQueue
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of
from tests.support.generation import ACCOUNTS, HOOKS, effects, enqueue, registry, send_all
from tests.support.mortals import Died, Gate, MortalDatabase, MortalQueue
from tests.support.postgres import pass_time, rows_of

ONCE = RetryPolicy(first_seconds=0, attempts=1)
OPTIONS = WorkOptions(verdict_policy=ONCE)


class Silent:
    """Takes the output of handlers, and keeps none."""

    def write(self, text: str, *, is_stderr: bool) -> None:
        """Take output."""

    def flush(self) -> None:
        """Have nothing to show."""

    def progress(self, done: int, total: int, message: str) -> None:
        """Take how far it is."""

    def room(self) -> None:
        """Hold nobody back."""


@dataclass(slots=True)
class World:
    database: Database
    mortal_database: MortalDatabase
    account: Aws
    url: str
    dead_url: str
    handlers: Registry

    async def work(self, database: Database, queue: SqsQueue) -> None:
        """Do all that is in the queue, one after the other, as a worker does."""
        sessions = SessionTable(database, "airunner")
        clock = SystemClock()
        source = GenerationSource(
            queue, sessions, self.handlers, clock=clock, visibility_seconds=120, wait_seconds=0
        )
        work = GenerationWork(sessions, clock, OPTIONS)
        try:
            while deliveries := await source.receive(10):
                for delivery in deliveries:
                    await self._process(work, source, delivery)
        finally:
            work.close()
        await LostPass(database, "airunner", self.handlers).run_once()

    async def _process(self, work: GenerationWork, source: GenerationSource, delivery: Any) -> None:
        value, message = delivery.body.value, delivery.body.message
        attempt = WorkTry(
            id=value.id,
            handler=value.handler,
            payload_json=value.payload_json,
            attempt=message.receive_count,
            last_try=message.last_receive,
        )
        try:
            result = await work.run(attempt, lambda session: _make_context(attempt, session.id))
        except PermanentFailure as failure:
            await source.dead_letter(delivery, failure)
        except TryAgain as error:
            await source.release(delivery, 0, str(error))
        else:
            await source.ack([(delivery, result)])

    async def letters(self, session_id: str) -> int:
        """Take the dead letters; return how many there were of one session."""
        queue, found = SqsQueue(self.account, self.dead_url), 0
        while messages := await queue.receive(10):
            found += sum(session_id in message.body for message in messages)
            await queue.delete(messages)
        return found


def _make_context(work: WorkTry, session_id: str) -> tuple[Silent, Context]:
    output = Silent()
    context = Context(
        job_id=session_id,
        queue="generation",
        attempt=work.attempt,
        request_id=session_id,
        last_try=work.last_try,
        output=output,
    )
    return output, context


def retries_once(ctx: Context) -> str:
    """Fail at the first try."""
    if ctx.attempt == 1:
        raise OSError("the provider is away")
    return "done"


def refuses() -> None:
    """Fail for good."""
    raise PermanentFailure("refused")


@pytest.fixture
async def world(dsn: str, emulator: EmulatorProcess, aws: StrictProxy, aws_env: str) -> AsyncIterator[World]:
    options = replace(options_of(aws.url), clients=OF_A_QUEUE)
    handlers = registry(
        succeeds=(lambda: "done", HOOKS), retries=(retries_once, HOOKS), refuses=(refuses, HOOKS)
    )
    mortal = MortalDatabase(PostgresOptions(dsn=dsn))
    async with Aws(options) as account, Database(PostgresOptions(dsn=dsn)) as database, mortal:
        await database.execute(ACCOUNTS)
        dead_url, url = await make_queues(account, aws_env, 5)
        yield World(database, mortal, account, url, dead_url, handlers)


@pytest.mark.parametrize("executed", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_whatever_a_worker_dies_at_each_row_has_its_effect_once(world: World, executed: bool) -> None:
    seconds = 0
    for number in itertools.count(1):
        await world.database.execute("DELETE FROM public.effects")
        ids = {name: await enqueue(world.database, name) for name in ("succeeds", "retries", "refuses")}
        queue = SqsQueue(world.account, world.url)
        await send_all(world.database, queue)
        gate = world.mortal_database.gate = Gate(number, executed=executed)
        mortal_queue = MortalQueue(world.account, world.url)
        mortal_queue.gate = gate
        try:
            await world.work(world.mortal_database, mortal_queue)
        except Died:
            assert gate.happened
        if gate.happened:
            # What the dead one held comes again; here as copies, since nobody waits two minutes for it.
            bodies = await world.database.fetch("SELECT payload::text AS body FROM airunner.outbox")
            await queue.send([NewMessage(body=row["body"]) for row in bodies])
        await world.work(world.database, SqsQueue(world.account, world.url))

        states = {
            row["name"]: row["state"] for row in await rows_of(world.database, "*", "generation_sessions")
        }
        story = f"dead {'after' if executed else 'before'} call {number}: {states}"
        assert states == {"succeeds": "done", "retries": "done", "refuses": "failed"}, story
        assert Counter(await effects(world.database)) == Counter(
            [(ids["succeeds"], "done"), (ids["retries"], "done"), (ids["refuses"], "failed:refused")]
        ), story
        # A letter is never lost; a death may double it.
        assert 1 <= await world.letters(ids["refuses"]) <= 2, story
        seconds += 200
        await pass_time(world.database, seconds=seconds)
        await world.database.execute("DELETE FROM airunner.outbox")
        await world.database.execute("DELETE FROM airunner.generation_sessions")
        if not gate.happened:
            assert number > 20
            return
