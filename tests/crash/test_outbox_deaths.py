"""Relays that die: at every call to PostgreSQL and SQS, by SIGKILL, and with PostgreSQL itself."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import asyncpg
import pytest
from structlog.testing import capture_logs

from airunner import enqueue_generation
from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.config import load_settings
from airunner.domain.clock import SystemClock
from airunner.local.postgres import LocalPostgres
from airunner.outbox.relay import Relay, RelayOptions
from airunner.outbox.sqs_sink import SqsSink
from airunner.outbox.start import OutboxRelay
from airunner.outbox.table import CLAIM_SECONDS, OutboxTable
from airunner.outbox.upkeep import OutboxUpkeep
from airunner.postgres.pool import Database, PostgresOptions
from airunner.queues.sqs import SqsQueue
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY, EmulatorProcess
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of
from tests.support.mortals import Died, Gate, MortalDatabase, MortalQueue
from tests.support.outbox import QUICK, ScriptedSink, make_relay, send_once, states, until_states
from tests.support.postgres import pass_time, rows_of
from tests.support.processes import RunningProcess


@dataclass(slots=True)
class World:
    application: asyncpg.Connection
    database: Database
    mortal_database: MortalDatabase
    account: Aws
    url: str
    seconds: int = 0

    async def enqueue_one_of_each_kind(self) -> dict[str, str]:
        """Enqueue a row for each way that a row can go."""
        enqueued = {
            "sent": await enqueue_generation(self.application, "sent", {}),
            "poisoned": await enqueue_generation(self.application, "poisoned", "\uffff"),
            "unknown": await enqueue_generation(self.application, "unknown", {}, queue="nowhere"),
            "unanswered": await enqueue_generation(self.application, "unanswered", {}),
        }
        # It was sent long ago, and nobody ever said what became of it.
        await self.database.execute(
            "UPDATE airunner.outbox SET state = 'dispatched', "
            "dispatched_at = airunner.instant() - interval '73 h' WHERE name = 'unanswered'"
        )
        return enqueued

    async def work(self, database: Database, queue: SqsQueue) -> None:
        """Do all that a relay does, once."""
        table = OutboxTable(database, "airunner")
        options = RelayOptions(relay_id="mortal", database_policy=QUICK)
        relay = Relay(table, SqsSink({"generation": queue}), SystemClock(), options, can_hear=lambda: True)
        await OutboxUpkeep(database, "airunner").run_once()
        await relay._say_waiting()
        await send_once(relay)
        await relay._stop_waiting()

    async def pass_over_claims(self) -> None:
        self.seconds += CLAIM_SECONDS + 1
        await pass_time(self.database, seconds=self.seconds)

    async def messages(self) -> Counter[str]:
        """Take all messages; return how many there were of each id."""
        queue, found = SqsQueue(self.account, self.url), Counter[str]()
        while messages := await queue.receive(10):
            found.update(json.loads(message.body)["id"] for message in messages)
            await queue.delete(messages)
        return found


@pytest.fixture
async def world(dsn: str, emulator: EmulatorProcess, aws: StrictProxy, aws_env: str) -> AsyncIterator[World]:
    options = replace(options_of(aws.url), clients=OF_A_QUEUE)
    application = await asyncpg.connect(dsn)
    mortal = MortalDatabase(PostgresOptions(dsn=dsn))
    async with Aws(options) as account, Database(PostgresOptions(dsn=dsn)) as database, mortal:
        _, url = await make_queues(account, aws_env, 5)
        yield World(application, database, mortal, account, url)
    await application.close()


# A death before a call is one after the call before it.
@pytest.mark.parametrize("executed", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_whatever_a_relay_dies_at_each_row_comes_to_its_end(world: World, executed: bool) -> None:
    for number in itertools.count(1):
        ids = await world.enqueue_one_of_each_kind()
        gate = world.mortal_database.gate = Gate(number, executed=executed)
        queue = MortalQueue(world.account, world.url)
        queue.gate = gate
        with capture_logs() as logs:
            try:
                await world.work(world.mortal_database, queue)
            except Died:
                assert gate.happened
        await world.pass_over_claims()
        await world.work(world.database, SqsQueue(world.account, world.url))

        found = {row["name"]: row["state"] for row in await rows_of(world.database, "name, state")}
        story = f"dead {'after' if executed else 'before'} call {number}: {found}, {logs}"
        assert found == {
            "sent": "dispatched",
            "poisoned": "parked",
            "unknown": "parked",
            "unanswered": "dispatched",
        }, story
        messages = await world.messages()
        # Twice is the most that one death can do.
        assert set(messages) == {ids["sent"], ids["unanswered"]}, story
        assert max(messages.values()) <= 2, story
        await world.database.execute("DELETE FROM airunner.outbox")
        if not gate.happened:
            assert number > 20
            assert max(messages.values()) == 1
            return


# Killed when SQS has the messages and nobody knows; killed when it will have them only later.
@pytest.mark.parametrize(
    "kind", [FaultKind.EXECUTE_THEN_HOLD, pytest.param(FaultKind.DELAY, marks=pytest.mark.slow)]
)
async def test_a_relay_that_is_killed_while_it_sends_leaves_its_rows_to_the_next(
    world: World, aws: StrictProxy, dsn: str, tmp_path: Path, kind: FaultKind
) -> None:
    environment = {
        "AIRUNNER_POSTGRES__DSN": dsn,
        "SQS_MAIN_QUEUE_URL": world.url,
        "AWS_REGION": REGION,
        "AWS_ENDPOINT_URL": aws.url,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }

    async def enqueue(count: int) -> set[str]:
        return {await enqueue_generation(world.application, "a", {}) for _ in range(count)}

    wanted = await enqueue(15)
    # The first call is answered; with the second the relay is killed.
    aws.faults.next("SendMessageBatch", FaultKind.DELAY, seconds=0.001)
    aws.faults.next("SendMessageBatch", kind)
    relay = RunningProcess("outbox", "relay", log=tmp_path / "relay.log", environment=environment)
    try:
        await until(lambda: aws.counts.calls["SendMessageBatch"] == 2, limit_seconds=60)
        await relay.kill()
    finally:
        relay.abandon()
    aws.faults.clear()
    assert await states(world.database) == {"pending": 15}
    await world.pass_over_claims()
    wanted |= await enqueue(3)
    await world.work(world.database, SqsQueue(world.account, world.url))
    assert await states(world.database) == {"dispatched": 18}
    assert set(await world.messages()) == wanted


async def test_postgresql_is_killed_and_comes_back(
    postgres: LocalPostgres, dsn: str, database: Database, tmp_path: Path
) -> None:
    sink = ScriptedSink()
    settings = load_settings(environ={}, flags={"postgres.dsn": dsn}, cwd=tmp_path).settings
    relay = OutboxRelay(settings, SystemClock(), sink=sink)
    await relay.start()

    async def enqueue(count: int) -> set[str]:
        connection = await asyncpg.connect(dsn)
        ids = {await enqueue_generation(connection, "a", {}, queue="q") for _ in range(count)}
        await connection.close()
        return ids

    with capture_logs() as logs:
        wanted = await enqueue(5)
        postgres.kill()
        await until(lambda: any(entry["event"] == "outbox.database_failed" for entry in logs))
        # One that is started meanwhile waits for it.
        late = OutboxRelay(settings, SystemClock(), sink=sink)
        await late.start()
        postgres.start()
        wanted |= await enqueue(5)
        await until(lambda: late.state == "ok", limit_seconds=60)
        await until(lambda: wanted <= set(sink.sent), limit_seconds=60)
        await relay.stop()
        await late.stop()
    async with Database(PostgresOptions(dsn=dsn)) as again:
        # A mark may have been lost with the server: then its claim expires, and the row is sent again.
        await pass_time(again, seconds=CLAIM_SECONDS + 1)
        await send_once(make_relay(OutboxTable(again, "airunner"), sink))
        await until_states(again, dispatched=10)
    assert set(sink.sent) == wanted
