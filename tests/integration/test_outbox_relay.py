"""The relay on a real PostgreSQL and the strict SQS: every row is sent, and marked with what became of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from airunner import enqueue_generation, telemetry
from airunner.aws.calls import Aws
from airunner.aws.clients import OF_A_QUEUE
from airunner.config import load_settings
from airunner.domain.clock import SystemClock
from airunner.domain.errors import Unavailable
from airunner.domain.retry import RetryPolicy
from airunner.outbox.relay import Relay, RelayOptions
from airunner.outbox.rows import ClaimedRow, Rejected, SendOutcome
from airunner.outbox.sqs_sink import SqsSink
from airunner.outbox.start import OutboxRelay
from airunner.outbox.statements import CLAIM, render
from airunner.outbox.table import Mark, OutboxTable
from airunner.outbox.upkeep import OutboxUpkeep
from airunner.postgres.pool import Database
from airunner.queues.sqs import SqsQueue
from airunner.testing.conditions import until
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_queues import make_queues
from tests.support.aws_stores import options_of
from tests.support.outbox import ScriptedSink, make_relay, running, send_once, states, until_states
from tests.support.postgres import pass_time, rows_of

IMPATIENT = RetryPolicy(first_seconds=0.001, max_seconds=0.002, attempts=2)


class CountedTable(OutboxTable):
    """Counts the statements of a relay."""

    def __init__(self, database: Database, schema: str = "airunner") -> None:
        super().__init__(database, schema)
        self.statements: Counter[str] = Counter()
        self.away = False

    async def claim(self, max_rows: int, *, without_queues: Sequence[str] = ()) -> list[ClaimedRow]:
        self.statements["claim"] += 1
        if self.away:
            raise Unavailable("away")
        return await super().claim(max_rows, without_queues=without_queues)

    async def mark(self, marks: Sequence[Any]) -> None:
        self.statements["mark"] += 1
        if self.away:
            raise Unavailable("away")
        await super().mark(marks)


@pytest.fixture
async def application(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    yield connection
    await connection.close()


class TestOnSqs:
    @dataclass(frozen=True, slots=True)
    class Site:
        account: Aws
        url: str
        sink: SqsSink

        async def bodies(self) -> list[dict[str, Any]]:
            """Receive all that is there."""
            found: list[dict[str, Any]] = []
            while messages := await SqsQueue(self.account, self.url).receive(10, visibility_seconds=60):
                found += [json.loads(message.body) for message in messages]
            return found

    @pytest.fixture
    async def site(self, aws: StrictProxy, aws_env: str) -> AsyncIterator[Site]:
        options = replace(options_of(aws.url), clients=OF_A_QUEUE)
        async with Aws(options, policy=IMPATIENT) as account:
            _, url = await make_queues(account, aws_env, 5)
            aws.counts.reset()
            yield self.Site(account, url, SqsSink({"generation": SqsQueue(account, url)}))

    async def test_a_hundred_rows_are_one_claim_ten_sends_and_one_mark(
        self, site: Site, aws: StrictProxy, application: asyncpg.Connection, database: Database
    ) -> None:
        async with application.transaction():
            ids = [await enqueue_generation(application, "a", {"n": n}) for n in range(100)]
        table = CountedTable(database)
        relay = make_relay(table, site.sink)
        sent_before = telemetry.outbox_sent.read()[()]
        await send_once(relay)
        assert table.statements == {"claim": 1, "mark": 1}
        assert aws.counts.calls == {"SendMessageBatch": 10}
        assert await states(database) == {"dispatched": 100}
        assert telemetry.outbox_sent.read()[()] - sent_before == 100
        bodies = await site.bodies()
        assert sorted(body["id"] for body in bodies) == sorted(ids)
        assert sorted(body["payload"]["n"] for body in bodies) == list(range(100))
        for row in await rows_of(database, "id, sink_ref, dispatched_at, claimed_until"):
            assert row["sink_ref"]
            assert row["dispatched_at"]
            assert row["claimed_until"] is None
        assert all(row["sent_at"] for row in await rows_of(database, "sent_at", "generation_sessions"))

    async def test_a_poisoned_row_is_parked_and_the_others_flow(
        self, site: Site, application: asyncpg.Connection, database: Database
    ) -> None:
        async with application.transaction():
            for number in range(60):
                # What is no character of XML: SQS takes no such message, and says so of each alone.
                await enqueue_generation(
                    application, "a", {"n": number, "bad": "\uffff" if number == 7 else ""}
                )
        with capture_logs() as logs:
            async with running(make_relay(OutboxTable(database, "airunner"), site.sink)):
                await until_states(database, dispatched=59, parked=1)
        (parked,) = await OutboxTable(database, "airunner").parked(10)
        assert "control characters" in parked.reason
        assert parked.attempts == 1
        assert [entry["id"] for entry in logs if entry["event"] == "outbox.parked"] == [parked.row_id]

    async def test_large_rows_go_in_calls_of_their_own(
        self, site: Site, aws: StrictProxy, application: asyncpg.Connection, database: Database
    ) -> None:
        for size in (900 * 1024 - 2, 200 * 1024, 200 * 1024, 10, 10):
            await enqueue_generation(application, "a", "x" * size)
        async with running(make_relay(OutboxTable(database, "airunner"), site.sink)):
            await until_states(database, dispatched=5)
        assert len(await site.bodies()) == 5

    async def test_a_lost_reply_sends_twice_and_marks_once(
        self, site: Site, aws: StrictProxy, application: asyncpg.Connection, database: Database
    ) -> None:
        for _ in range(2):
            await enqueue_generation(application, "a", {})
        aws.faults.next("SendMessageBatch", FaultKind.EXECUTE_THEN_DROP)
        async with running(make_relay(OutboxTable(database, "airunner"), site.sink)):
            await until_states(database, dispatched=2)
        bodies = await site.bodies()
        assert len({body["id"] for body in bodies}) == 2
        assert len(bodies) == 4

    async def test_entries_that_fail_back_off_and_the_rest_is_sent(
        self, site: Site, aws: StrictProxy, application: asyncpg.Connection, database: Database
    ) -> None:
        async with application.transaction():
            for _ in range(10):
                await enqueue_generation(application, "a", {})
        aws.faults.next("SendMessageBatch", FaultKind.UNPROCESSED)
        relay = make_relay(OutboxTable(database, "airunner"), site.sink)
        await send_once(relay)
        found = await rows_of(database, "id, state, attempts, due_at > airunner.instant() AS rests")
        told = {(row["state"], row["attempts"], row["rests"]) for row in found}
        assert told == {("dispatched", 0, False), ("pending", 1, True)}

    async def test_a_queue_that_is_away_counts_against_no_row(
        self, site: Site, aws: StrictProxy, application: asyncpg.Connection, database: Database
    ) -> None:
        for _ in range(3):
            await enqueue_generation(application, "a", {})
        aws.faults.next("SendMessageBatch", FaultKind.SERVER_ERROR, times=4)
        with capture_logs() as logs:
            async with running(make_relay(OutboxTable(database, "airunner"), site.sink)):
                await until_states(database, dispatched=3)
        assert [row["attempts"] for row in await rows_of(database, "attempts")] == [0, 0, 0]
        assert [entry["event"] for entry in logs].count("outbox.send_failed") == 2

    async def test_a_queue_that_does_not_exist_is_waited_for(
        self, site: Site, application: asyncpg.Connection, database: Database, aws_env: str
    ) -> None:
        await enqueue_generation(application, "a", {})
        later = f"{aws_env}-later"
        sink = SqsSink({"generation": SqsQueue(site.account, site.url.replace(aws_env, later))})
        with capture_logs() as logs:
            async with running(make_relay(OutboxTable(database, "airunner"), sink)):
                await until(lambda: any(entry["event"] == "outbox.queue_missing" for entry in logs))
                await site.account.sqs("CreateQueue", QueueName=later)
                await until_states(database, dispatched=1)

    async def test_messages_that_got_lost_are_sent_again_after_three_days(
        self, site: Site, application: asyncpg.Connection, database: Database
    ) -> None:
        row_id = await enqueue_generation(application, "a", {})
        upkeep = OutboxUpkeep(database, "airunner")
        async with running(make_relay(OutboxTable(database, "airunner"), site.sink)) as relay:
            await until_states(database, dispatched=1)
            await site.account.sqs("PurgeQueue", QueueUrl=site.url)
            await pass_time(database, hours=71)
            assert (await upkeep.run_once()).resent == 0
            await pass_time(database, hours=73)
            assert (await upkeep.run_once()).resent == 1
            relay.wake()
            await until_states(database, dispatched=1)
        assert [body["id"] for body in await site.bodies()] == [row_id]

    async def test_without_an_address_rows_wait_and_it_is_said(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        await enqueue_generation(application, "a", {})
        await enqueue_generation(application, "a", {}, queue="mails")
        with capture_logs() as logs:
            async with running(make_relay(OutboxTable(database, "airunner"), SqsSink({}))):
                await until(lambda: any(entry["event"] == "outbox.queue_missing" for entry in logs))
                await until_states(database, pending=1, parked=1)
        (parked,) = await OutboxTable(database, "airunner").parked(10)
        assert (parked.queue, parked.reason) == ("mails", "unknown_queue")


class TestRows:
    async def test_a_refused_row_is_parked_after_ten_attempts(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        await enqueue_generation(application, "bad", {}, queue="q")
        await enqueue_generation(application, "worse", {}, queue="q")
        answers: dict[str, SendOutcome] = {"bad": Rejected("no"), "worse": Rejected("never", for_good=True)}
        relay = make_relay(OutboxTable(database, "airunner"), ScriptedSink(answers))
        for turn in range(12):
            await pass_time(database, hours=turn)
            await send_once(relay)
        found = await rows_of(database, "name, state, reason, attempts")
        assert {row["name"]: (row["state"], row["reason"], row["attempts"]) for row in found} == {
            "bad": ("parked", "no", 10),
            "worse": ("parked", "never", 1),
        }

    async def test_transactions_that_commit_out_of_order_are_all_sent(
        self, dsn: str, application: asyncpg.Connection, database: Database
    ) -> None:
        slow = await asyncpg.connect(dsn)
        transaction = slow.transaction()
        await transaction.start()
        first = await enqueue_generation(slow, "first", {}, queue="q")
        sink = ScriptedSink()
        async with running(make_relay(OutboxTable(database, "airunner"), sink)):
            later = [await enqueue_generation(application, "a", {}, queue="q") for _ in range(3)]
            await until(lambda: sorted(sink.sent) == sorted(later))
            await transaction.commit()
            await until(lambda: first in sink.sent)
        await slow.close()

    async def test_a_delayed_row_is_sent_when_it_is_due(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        await enqueue_generation(application, "a", {}, queue="q", delay_seconds=3600)
        table = OutboxTable(database, "airunner")
        assert await table.claim(10) == []
        await pass_time(database, hours=1.1)
        assert len(await table.claim(10)) == 1

    async def test_claims_are_exclusive_and_expire(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        for _ in range(10):
            await enqueue_generation(application, "a", {}, queue="q")
        table = OutboxTable(database, "airunner")
        one, two = await asyncio.gather(table.claim(6), table.claim(6))
        assert sorted([len(one), len(two)]) == [4, 6]
        assert await table.claim(10) == []
        await pass_time(database, seconds=121)
        assert len(await table.claim(20)) == 10

    async def test_a_mark_that_comes_late_takes_nothing_back(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        table = OutboxTable(database, "airunner")
        row_id = await enqueue_generation(application, "a", {}, queue="q")
        await table.claim(10)
        await pass_time(database, seconds=121)
        assert len(await table.claim(10)) == 1
        # It was sent by the first, whoever holds it now; and the second cannot make that undone.
        await table.mark([Mark(row_id=row_id, state="dispatched", sink_ref="first")])
        await table.mark([Mark(row_id=row_id, state="parked", reason="no", attempts=1)])
        await table.mark([Mark(row_id=row_id, state="dispatched", sink_ref="second")])
        (row,) = await rows_of(database, "state, sink_ref, reason, attempts")
        assert row == {"state": "dispatched", "sink_ref": "first", "reason": "", "attempts": 0}

    async def test_a_queue_with_many_rows_holds_up_no_other(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        await application.execute(
            "SELECT airunner.enqueue('a', '{}', 'many'), airunner.enqueue('b', '{}', 'other') "
            "FROM generate_series(1, 150)"
        )
        await enqueue_generation(application, "c", {}, queue="small")
        table = OutboxTable(database, "airunner")
        claimed = Counter(row.queue for row in await table.claim(100))
        assert claimed == {"many": 100, "other": 100, "small": 1}
        claimed = Counter(row.queue for row in await table.claim(100, without_queues=["many"]))
        assert claimed == {"other": 50}
        assert (await table.status()).pending == 301

    async def test_rows_of_a_queue_that_is_left_alone_are_not_walked_past(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        await application.execute(
            "SELECT airunner.enqueue('a', '{}', 'missing') FROM generate_series(1, 3000); "
            "ANALYZE airunner.outbox"
        )
        await enqueue_generation(application, "b", {}, queue="well")
        claim = render(CLAIM, "airunner")
        async with database.transaction() as connection:
            plan = await connection.fetchval(
                f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {claim}", 100, ["missing"], 120.0, 1000
            )
        (told,) = json.loads(plan)
        # Pages: of the index a few for each queue, and some for the row itself.
        assert told["Plan"]["Shared Hit Blocks"] + told["Plan"]["Shared Read Blocks"] < 60

    async def test_no_row_waits_for_a_queue_that_hangs(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        hung = asyncio.Event()
        sink = ScriptedSink(hung={"slow": hung})
        await enqueue_generation(application, "stuck", {}, queue="slow")
        async with running(make_relay(OutboxTable(database, "airunner"), sink)):
            await until(lambda: sink.calls == [("slow", 1)])
            for _ in range(3):
                await enqueue_generation(application, "a", {}, queue="quick")
            await until(lambda: len(sink.sent) == 3)
            hung.set()
            await until_states(database, dispatched=4)

    async def test_a_sink_that_raises_anything_counts_against_no_row(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        await enqueue_generation(application, "a", {}, queue="q")
        sink = ScriptedSink(error=ZeroDivisionError())
        with capture_logs() as logs:
            async with running(make_relay(OutboxTable(database, "airunner"), sink)):
                await until(lambda: len(sink.calls) == 2)
                sink.error = None
                await until_states(database, dispatched=1)
        assert "outbox.relay_error" in {entry["event"] for entry in logs}
        assert (await rows_of(database, "attempts"))[0]["attempts"] == 0

    async def test_two_relays_send_each_row_once(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        async with application.transaction():
            ids = [await enqueue_generation(application, "a", {}, queue="q") for _ in range(250)]
        sinks = [ScriptedSink(), ScriptedSink()]
        table = OutboxTable(database, "airunner")
        async with running(make_relay(table, sinks[0])), running(make_relay(table, sinks[1], "two")):
            await until_states(database, dispatched=250)
        assert sorted(sinks[0].sent + sinks[1].sent) == sorted(ids)

    async def test_while_the_database_is_away_nothing_is_claimed_and_marks_wait(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        table, sink = CountedTable(database), ScriptedSink()
        hung = sink.hung["q"] = asyncio.Event()
        await enqueue_generation(application, "a", {}, queue="q")
        with capture_logs() as logs:
            async with running(make_relay(table, sink)):
                await until(lambda: sink.calls != [])
                table.away = True
                hung.set()
                await until(lambda: table.statements["mark"] > 2)
                await until(lambda: table.statements["claim"] > 3)
                table.away = False
                await until_states(database, dispatched=1)
        assert "outbox.database_failed" in {entry["event"] for entry in logs}
        assert len(sink.calls) == 1


class TestWaking:
    async def test_a_relay_that_waits_is_woken_and_one_that_works_is_not_notified(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        table, sink = OutboxTable(database, "airunner"), ScriptedSink()
        relay = Relay(table, sink, SystemClock(), RelayOptions(relay_id="r"), can_hear=lambda: True)

        async def waiting() -> int:
            return (await table.status()).relays_waiting

        hung = sink.hung["q"] = asyncio.Event()
        async with running(relay):
            while not await waiting():
                await asyncio.sleep(0.01)
            await enqueue_generation(application, "a", {}, queue="q")
            relay.wake()
            while await waiting():
                await asyncio.sleep(0.01)
            hung.set()
            while not await waiting():
                await asyncio.sleep(0.01)
        assert await waiting() == 0

    async def test_an_enqueue_wakes_a_relay_that_waits(
        self, application: asyncpg.Connection, dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("airunner.outbox.relay.POLL_SECONDS", 3600)
        settings = load_settings(environ={}, flags={"postgres.dsn": dsn}, cwd=tmp_path).settings
        sink = ScriptedSink()
        relay = OutboxRelay(settings, SystemClock(), sink=sink)
        await relay.start()
        assert (relay.state, relay.healthy) == ("ok", True)
        for number in range(3):
            # Each time it says that it waits before it does.
            while not await application.fetchval("SELECT count(*) FROM airunner.outbox_relays"):
                await asyncio.sleep(0.01)
            await enqueue_generation(application, "a", {}, queue="q")
            await until(lambda number=number: len(sink.sent) == number + 1)  # type: ignore[misc]  # its own
        await relay.stop()
        assert await application.fetchval("SELECT count(*) FROM airunner.outbox_relays") == 0

    async def test_one_that_waits_for_a_database_can_be_stopped(self, tmp_path: Path) -> None:
        flags = {"postgres.dsn": f"postgresql://a@/d?host={tmp_path}"}
        settings = load_settings(environ={}, flags=flags, cwd=tmp_path).settings
        relay = OutboxRelay(settings, SystemClock(), sink=ScriptedSink())
        with capture_logs() as logs:
            await relay.start()
            assert (relay.state, relay.healthy) == ("waiting", True)
            await relay.stop()
            await relay.stop()
        assert {entry["event"] for entry in logs} == {"outbox.database_failed"}

    async def test_a_row_between_the_look_and_the_wait_is_found_at_once(
        self, application: asyncpg.Connection, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The relay says that it waits, and looks again before it does."""
        monkeypatch.setattr("airunner.outbox.relay.POLL_SECONDS", 3600)
        sink = ScriptedSink()

        class LateRow(OutboxTable):
            async def set_waiting(self, relay_id: str) -> None:
                if not await rows_of(database):
                    await enqueue_generation(application, "late", {}, queue="q")
                await super().set_waiting(relay_id)

        table = LateRow(database, "airunner")
        relay = Relay(table, sink, SystemClock(), RelayOptions(relay_id="r"), can_hear=lambda: True)
        async with running(relay):
            await until(lambda: len(sink.sent) == 1)


class TestDrain:
    async def test_what_is_being_sent_is_finished(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        sink = ScriptedSink(hung={"q": asyncio.Event()})
        await enqueue_generation(application, "a", {}, queue="q")
        relay = make_relay(OutboxTable(database, "airunner"), sink)
        task = asyncio.create_task(relay.run())
        await until(lambda: sink.calls != [])
        draining = asyncio.create_task(relay.drain())
        await enqueue_generation(application, "b", {}, queue="other")
        await task
        sink.hung["q"].set()
        await draining
        await relay.drain()
        assert await states(database) == {"dispatched": 1, "pending": 1}

    async def test_all_of_it_stays_open_until_what_is_being_sent_is_marked(
        self, application: asyncpg.Connection, database: Database, dsn: str, tmp_path: Path
    ) -> None:
        """As `airunner outbox relay` runs it: the database was closed as soon as nothing more was claimed."""
        settings = load_settings(environ={}, flags={"postgres.dsn": dsn}, cwd=tmp_path).settings
        sink = ScriptedSink(hung={"q": asyncio.Event()})
        await enqueue_generation(application, "a", {}, queue="q")
        relay = OutboxRelay(settings, SystemClock(), sink=sink)
        with capture_logs() as logs:
            task = asyncio.create_task(relay.run())
            await until(lambda: sink.calls != [])
            draining = asyncio.create_task(relay.drain())
            await asyncio.sleep(0.1)
            sink.hung["q"].set()
            await draining
            await task
        assert await states(database) == {"dispatched": 1}
        assert logs == []

    async def test_what_hangs_is_given_back(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        sink = ScriptedSink(hung={"q": asyncio.Event()})
        await enqueue_generation(application, "a", {}, queue="q")
        relay = make_relay(OutboxTable(database, "airunner"), sink, grace_seconds=0.05)
        task = asyncio.create_task(relay.run())
        await until(lambda: sink.calls != [])
        await relay.drain()
        await task
        assert len(await OutboxTable(database, "airunner").claim(10)) == 1


class TestUpkeep:
    async def test_rows_are_purged_when_they_are_over(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        settled = await enqueue_generation(application, "settled", {})
        for name, queue in (("open", "generation"), ("mail", "mails"), ("parked", "nowhere")):
            await enqueue_generation(application, name, {}, queue=queue)
        relay = make_relay(OutboxTable(database, "airunner"), ScriptedSink())
        await send_once(relay)
        await database.execute(
            "WITH v AS (INSERT INTO airunner.outbox_effects "
            "VALUES ($1::text::uuid, 'verdict', airunner.instant())), "
            "s AS (UPDATE airunner.generation_sessions SET state = 'done', finished_at = airunner.instant() "
            "WHERE id = $1::text::uuid) "
            "UPDATE airunner.outbox SET verdict_at = airunner.instant() WHERE id = $1::text::uuid",
            settled,
        )
        upkeep = OutboxUpkeep(database, "airunner", session_days=90)
        seen = []
        for days in (6, 8, 59, 61, 91):
            await pass_time(database, days=days)
            await upkeep.run_once()
            names = sorted(row["name"] for row in await rows_of(database, "name"))
            kept = [
                len(await rows_of(database, "1", table))
                for table in ("outbox_effects", "generation_sessions")
            ]
            seen.append((days, names, *kept))
        everything = ["mail", "open", "parked", "settled"]
        assert seen == [
            (6, everything, 1, 2),
            (8, ["open", "parked"], 1, 2),
            (59, ["open", "parked"], 1, 2),
            (61, ["open", "parked"], 0, 2),
            (91, ["open", "parked"], 0, 1),
        ]

    async def test_sessions_stay_for_ever_unless_told_otherwise(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        await enqueue_generation(application, "a", {})
        await database.execute("UPDATE airunner.generation_sessions SET finished_at = airunner.instant()")
        await pass_time(database, days=3000)
        await OutboxUpkeep(database, "airunner").run_once()
        assert len(await rows_of(database, table="generation_sessions")) == 1

    async def test_one_relay_at_a_time_does_it(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        await database.execute(
            "INSERT INTO airunner.outbox_relays VALUES ('gone', airunner.instant() - interval '2 h')"
        )
        upkeep = OutboxUpkeep(database, "airunner")
        async with database.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", 0x6169_7275_6E02)
            assert (await upkeep.run_once()).purged == 0
        assert (await upkeep.run_once()).purged == 1


class TestMetrics:
    async def test_a_relay_shows_how_much_waits_and_is_parked(
        self, application: asyncpg.Connection, database: Database, dsn: str, tmp_path: Path
    ) -> None:
        await enqueue_generation(application, "parked", {}, queue="nowhere")
        await send_once(make_relay(OutboxTable(database, "airunner"), ScriptedSink()))
        sink = ScriptedSink()
        sink.hung["q"] = asyncio.Event()
        for delay_seconds in (0, 3600):
            await enqueue_generation(application, "a", {}, queue="q", delay_seconds=delay_seconds)
        await pass_time(database, seconds=90)
        settings = load_settings(environ={}, flags={"postgres.dsn": dsn}, cwd=tmp_path).settings
        relay = OutboxRelay(settings, SystemClock(), sink=sink)
        shown = telemetry.outbox_oldest_age.times_shown
        await relay.start()
        await until(lambda: telemetry.outbox_oldest_age.times_shown > shown)
        sink.hung["q"].set()
        await relay.stop()
        assert telemetry.outbox_pending.read() == {(): 2}
        assert telemetry.outbox_parked.read() == {(): 1}
        assert 90 <= telemetry.outbox_oldest_age.read()[()] < 3600


class TestOperators:
    async def test_status_parked_retry_and_rerun(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        table = OutboxTable(database, "airunner")
        done = await enqueue_generation(application, "done", {"x": 1})
        lost = await enqueue_generation(application, "lost", {"x": 2}, queue="nowhere")
        relay = make_relay(table, ScriptedSink())
        await send_once(relay)
        await enqueue_generation(application, "new", {})
        status = await table.status()
        assert (status.pending, status.parked, status.open) == (1, 1, 1)
        assert await table.retry([done]) == []
        assert await table.retry([lost]) == [lost]
        assert (await table.status()).parked == 0
        again = await table.rerun(done)
        found = {str(row["id"]): row for row in await rows_of(database, table="generation_sessions")}
        assert again
        assert json.loads(found[again.row_id]["request"]) == {"x": 1}
        assert found[again.row_id]["principal"] == found[done]["principal"]
        # A session is enough, a row that is gone and had none is not.
        await database.execute("DELETE FROM airunner.outbox")
        await database.execute("DELETE FROM airunner.generation_sessions WHERE id::text = $1", again.row_id)
        assert await table.rerun(done) == again
        assert await table.rerun(lost) is None

    @pytest.mark.parametrize("queue", ["generation", "mails"])
    async def test_a_row_that_is_rerun_twice_is_done_once_more_and_that_is_said(
        self, application: asyncpg.Connection, database: Database, queue: str
    ) -> None:
        table = OutboxTable(database, "airunner")
        first = await enqueue_generation(application, "paint", {"x": 1}, queue=queue)
        again = await table.rerun(first)
        assert again
        assert (again.is_new, again.row_id != first) == (True, True)
        assert await table.rerun(first) == replace(again, is_new=False)
        assert len(await rows_of(database)) == 2
        # What was done again is a row as any other.
        third = await table.rerun(again.row_id)
        assert third
        assert (third.is_new, third.row_id in {first, again.row_id}) == (True, False)
        assert len(await rows_of(database)) == 3

    async def test_operators_who_rerun_a_row_at_the_same_time_enqueue_it_once(
        self, application: asyncpg.Connection, database: Database
    ) -> None:
        table = OutboxTable(database, "airunner")
        first = await enqueue_generation(application, "paint", {"x": 1})
        found = await asyncio.gather(*(table.rerun(first) for _ in range(5)))
        assert len({again.row_id for again in found if again}) == 1
        assert len(await rows_of(database)) == 2
