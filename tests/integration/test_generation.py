"""Work of the generation queue: one verdict for each, with all that belongs to it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import threading
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from airunner.domain.clock import SystemClock
from airunner.domain.errors import PermanentFailure, Unavailable
from airunner.domain.retry import RetryPolicy
from airunner.generation.sessions import SessionTable
from airunner.generation.verdict import GenerationFailure, Settled, Success
from airunner.handlers import Context
from airunner.handlers.images import Image, Images
from airunner.handlers.registry import Hooks
from airunner.local.postgres import LocalPostgres
from airunner.outbox.enqueueing import enqueue_generation
from airunner.postgres.pool import Database
from airunner.queues.memory import MemoryQueue
from airunner.queues.messages import NewMessage
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from tests.support.consumers import turns
from tests.support.generation import (
    ACCOUNTS,
    HOOKS,
    effects,
    enqueue,
    letters,
    make_consumer,
    registry,
    send_all,
    until_sessions,
    working,
    write_success,
)
from tests.support.postgres import rows_of

DEFERRED = """
CREATE TEMP TABLE users (id integer PRIMARY KEY) ON COMMIT DROP;
CREATE TEMP TABLE pictures (
    user_id integer REFERENCES users (id) DEFERRABLE INITIALLY DEFERRED
) ON COMMIT DROP;
INSERT INTO pictures VALUES (1)
"""


@pytest.fixture
async def sessions(database: Database) -> SessionTable:
    await database.execute(ACCOUNTS)
    await database.execute("DELETE FROM public.effects")
    return SessionTable(database, "airunner")


@pytest.fixture
def queue() -> MemoryQueue:
    return MemoryQueue(SystemClock(), max_receive_count=5)


async def until_somebody_waits(database: Database) -> None:
    """Return once a transaction waits for another."""
    async with asyncio.timeout(20):
        while not await database.fetch_value("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await turns()


async def test_a_success_is_ledger_session_hook_and_notification_at_once(
    database: Database, sessions: SessionTable, queue: MemoryQueue, dsn: str
) -> None:
    heard: list[str] = []
    listener = await asyncpg.connect(dsn)
    await listener.add_listener("session_completed", lambda *values: heard.append(values[-1]))
    seen: list[Any] = []

    async def paint(payload: dict[str, Any], ctx: Context) -> dict[str, Any]:
        seen.append((payload, ctx.request_id, ctx.attempt, ctx.last_try, ctx.queue))
        return {"answer": payload["n"]}

    session_id = await enqueue(database, "paint", {"n": 3})
    await send_all(database, queue)
    async with working(make_consumer(queue, sessions, registry(paint=(paint, HOOKS)))):
        (row,) = await until_sessions(database, done=1)
        await until(lambda: heard == [session_id])
    assert seen == [({"n": 3}, session_id, 1, False, "generation")]
    assert json.loads(row["result"]) == {"answer": 3}
    assert row["attempts"] == 1
    assert row["started_at"] <= row["finished_at"]
    assert await effects(database) == [(session_id, "done")]
    assert [entry["kind"] for entry in await rows_of(database, "kind", "outbox_effects")] == ["verdict"]
    assert all(entry["verdict_at"] for entry in await rows_of(database))
    assert (await queue.depth()).visible == 0
    await listener.close()


async def test_a_slot_that_becomes_free_is_filled_by_the_next_receive(
    database: Database, sessions: SessionTable
) -> None:
    calls: list[str] = []

    class LoggedQueue(MemoryQueue):
        async def receive(self, max_messages: int, **options: Any) -> Any:
            found = await super().receive(max_messages, **options)
            calls.append(f"receive {max_messages}")
            return found

    queue = LoggedQueue(SystemClock(), max_receive_count=5)
    may_end = threading.Semaphore(0)

    def paint() -> None:
        calls.append("begin")
        may_end.acquire(timeout=20)

    for _ in range(5):
        await enqueue(database, "paint")
    await send_all(database, queue)
    async with working(make_consumer(queue, sessions, registry(paint=paint), concurrency=lambda: 2)):
        await until(lambda: calls.count("begin") == 2)
        for begun in (3, 4, 5):
            may_end.release()
            await until(lambda count=begun: calls.count("begin") == count)  # type: ignore[misc]
        # By the order of the calls: each slot that became free waited for one receive, which was for it.
        assert calls == ["receive 2", "begin", "begin", *["receive 1", "begin"] * 3]
        may_end.release(2)
        await until_sessions(database, done=5)


async def test_images_become_rows(database: Database, sessions: SessionTable, queue: MemoryQueue) -> None:
    content = b"\x89PNG"
    results: list[object] = []

    def paint() -> Images:
        return Images([Image.of("s3://pictures/1.png", "image/png", content)])

    async def keep(connection: Any, session: Any, result: Any) -> None:
        results.extend(result)

    await enqueue(database, "paint")
    await send_all(database, queue)
    async with working(make_consumer(queue, sessions, registry(paint=(paint, Hooks(on_success=keep))))):
        (row,) = await until_sessions(database, done=1)
    (image,) = await rows_of(database, "*", "images")
    assert row["result"] is None
    assert (image["place"], image["content_type"], image["bytes"]) == ("s3://pictures/1.png", "image/png", 4)
    assert image["sha256"] == hashlib.sha256(content).digest()
    assert results == [Image.of("s3://pictures/1.png", "image/png", content)]


async def test_a_permanent_failure_is_compensated_once_and_its_letter_says_all(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    calls: list[int] = []

    def paint(ctx: Context) -> None:
        calls.append(ctx.attempt)
        if ctx.attempt == 1:
            raise OSError("the provider is away")
        raise PermanentFailure("nsfw", "no such pictures")

    session_id = await enqueue(database, "paint", {"n": 3})
    await send_all(database, queue)
    async with working(make_consumer(queue, sessions, registry(paint=(paint, HOOKS)))):
        (row,) = await until_sessions(database, failed=1)
        await until(lambda: len(queue.dead_letters._kept) == 1)  # type: ignore[union-attr]
    assert calls == [1, 2]
    assert (row["code"], row["error"]) == ("nsfw", "no such pictures")
    (letter,) = await letters(queue)
    assert {key: letter[key] for key in ("id", "name", "payload")} == {
        "id": session_id,
        "name": "paint",
        "payload": {"n": 3},
    }
    failure = letter["failure"]
    assert failure["code"] == "nsfw"
    assert failure["handler"] == "paint"
    assert failure["attempts"] == 2
    assert failure["first_error"] == "OSError: the provider is away"
    assert failure["last_error"] == "no such pictures"
    assert failure["created_at"] <= failure["started_at"] <= failure["failed_at"]
    assert await effects(database) == [(session_id, "failed:nsfw")]


async def test_the_last_try_is_the_verdict(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    tries: list[tuple[int, bool]] = []

    async def paint(ctx: Context) -> None:
        tries.append((ctx.attempt, ctx.last_try))
        raise RuntimeError("away")

    await enqueue(database, "paint")
    await send_all(database, queue)
    async with working(make_consumer(queue, sessions, registry(paint=(paint, HOOKS)))):
        (row,) = await until_sessions(database, failed=1)
        await until(lambda: len(queue.dead_letters._kept) == 1)  # type: ignore[union-attr]
    assert tries == [(1, False), (2, False), (3, False), (4, False), (5, True)]
    assert row["code"] == "exhausted"
    assert [what for _, what in await effects(database)] == ["failed:exhausted"]


async def test_copies_of_a_message_have_one_effect_and_one_letter(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    calls: list[str] = []

    def good() -> None:
        calls.append("good")

    def bad() -> None:
        calls.append("bad")
        raise PermanentFailure("bad")

    await enqueue(database, "good")
    await enqueue(database, "bad")
    await send_all(database, queue)
    handlers = registry(good=(good, HOOKS), bad=(bad, HOOKS))
    async with working(make_consumer(queue, sessions, handlers)):
        await until_sessions(database, done=1, failed=1)
        await until(lambda: len(queue.dead_letters._kept) == 1)  # type: ignore[union-attr]
        bodies = await database.fetch("SELECT payload::text AS body FROM airunner.outbox")
        await queue.send([NewMessage(body=row["body"]) for row in bodies] * 2)
        await until(lambda: not queue._kept)
        # Sessions outlive their rows of the ledger.
        await database.execute("DELETE FROM airunner.outbox_effects")
        await queue.send([NewMessage(body=row["body"]) for row in bodies])
        await until(lambda: not queue._kept)
    assert sorted(calls) == ["bad", "good"]
    assert sorted(what for _, what in await effects(database)) == ["done", "failed:bad"]
    assert len(await letters(queue)) == 1


@pytest.mark.parametrize("is_good", [True, False])
async def test_copies_that_are_done_at_the_same_time_have_one_effect(
    database: Database, sessions: SessionTable, queue: MemoryQueue, is_good: bool
) -> None:
    both = threading.Barrier(2)

    def paint() -> str:
        both.wait(timeout=60)
        if not is_good:
            raise PermanentFailure("bad")
        return "a picture"

    session_id = await enqueue(database, "paint")
    (row,) = await database.fetch("SELECT payload::text AS body FROM airunner.outbox")
    await queue.send([NewMessage(body=row["body"])] * 2)
    async with working(make_consumer(queue, sessions, registry(paint=(paint, HOOKS)))):
        await until(lambda: not queue._kept, limit_seconds=60)
    assert await effects(database) == [(session_id, "done" if is_good else "failed:bad")]
    ledger = [entry["kind"] for entry in await rows_of(database, "kind", "outbox_effects")]
    assert ledger.count("verdict") == 1


@pytest.mark.parametrize("is_good", [True, False])
async def test_who_comes_with_another_verdict_goes_by_the_one_that_is_written(
    database: Database, sessions: SessionTable, queue: MemoryQueue, is_good: bool
) -> None:
    begun, free = threading.Event(), threading.Event()

    def paint() -> str:
        begun.set()
        free.wait(60)
        if is_good:
            raise PermanentFailure("late")
        return "a late picture"

    session_id = await enqueue(database, "paint")
    await send_all(database, queue)
    async with working(make_consumer(queue, sessions, registry(paint=(paint, HOOKS)))):
        await until(begun.is_set)
        # A copy was quicker; a failed one died before its letter was sent.
        verdict = Success() if is_good else GenerationFailure(code="bad", reason="it is bad")
        assert await sessions.settle(session_id, verdict, HOOKS)
        free.set()
        await until(lambda: not queue._kept)
    assert [letter["failure"]["code"] for letter in await letters(queue)] == ([] if is_good else ["bad"])
    assert await effects(database) == [(session_id, "done" if is_good else "failed:bad")]


async def test_a_try_that_comes_while_a_verdict_is_written_finds_it(
    database: Database, sessions: SessionTable
) -> None:
    begun, free = asyncio.Event(), asyncio.Event()

    async def capture(connection: Any, session: Any, result: Any) -> None:
        begun.set()
        await free.wait()

    session_id = await enqueue(database, "paint")
    settling = asyncio.create_task(sessions.settle(session_id, Success(), Hooks(on_success=capture)))
    await begun.wait()
    beginning = asyncio.create_task(sessions.begin(session_id, 2, last_try=False, lost_seconds=60))
    await until_somebody_waits(database)
    free.set()
    assert await settling
    assert (await beginning).settled is Settled.DONE


async def test_a_verdict_takes_the_row_of_the_outbox_before_its_session_as_relays_do(
    database: Database, sessions: SessionTable
) -> None:
    session_id = await enqueue(database, "paint")
    async with database.transaction() as marking:
        await marking.execute("SELECT FROM airunner.outbox WHERE id = $1::text::uuid FOR UPDATE", session_id)
        settling = asyncio.create_task(sessions.settle(session_id, Success(), HOOKS))
        await until_somebody_waits(database)
        # With the other order this would wait for the verdict, which waits for this.
        await marking.execute(
            "SELECT FROM airunner.generation_sessions WHERE id = $1::text::uuid FOR UPDATE NOWAIT", session_id
        )
    assert await settling
    await until_sessions(database, done=1)


async def test_a_letter_that_was_not_sent_is_sent_with_the_next_delivery(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    def never() -> None:
        raise AssertionError("there is a verdict")

    session_id = await enqueue(database, "paint")
    # A worker wrote the verdict, and died.
    assert await sessions.settle(session_id, GenerationFailure(code="bad", reason="it is bad"), HOOKS)
    await send_all(database, queue)
    async with working(make_consumer(queue, sessions, registry(paint=(never, HOOKS)))):
        await until(lambda: len(queue.dead_letters._kept) == 1 and not queue._kept)  # type: ignore[union-attr]
    (letter,) = await letters(queue)
    assert (letter["failure"]["code"], letter["failure"]["reason"]) == ("bad", "it is bad")
    assert len(await effects(database)) == 1


async def test_a_letter_that_would_be_too_large_is_the_message_as_it_came(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    def bad() -> None:
        raise PermanentFailure("bad")

    # Letters are ASCII: these characters take twice the room in them.
    await enqueue(database, "bad", {"text": "\u20ac" * 290_000})
    await send_all(database, queue)
    async with working(make_consumer(queue, sessions, registry(bad=(bad, HOOKS)))):
        await until_sessions(database, failed=1)
        await until(lambda: not queue._kept)
    assert queue.dead_letters
    (letter,) = await queue.dead_letters.receive(2)
    assert letter.attributes["reason"] == "bad"
    assert len(json.loads(letter.body)["payload"]["text"]) == 290_000
    assert await database.fetch_value("SELECT count(*) FROM airunner.outbox_effects") == 2


@pytest.mark.parametrize(
    "body", ["{", "[]", '{"id": "x", "name": "a", "payload": 1}', '{"id": 1, "name": 2}']
)
async def test_what_nobody_can_read_is_put_aside_as_it_is(
    sessions: SessionTable, queue: MemoryQueue, body: str
) -> None:
    await queue.send([NewMessage(body=body)])
    async with working(make_consumer(queue, sessions, registry(a=lambda: None))):
        await until(lambda: len(queue.dead_letters._kept) == 1 and not queue._kept)  # type: ignore[union-attr]
    assert queue.dead_letters
    (letter,) = await queue.dead_letters.receive(1)
    assert (letter.body, letter.attributes["reason"]) == (body, "undecodable")


async def test_what_nobody_handles_or_enqueued_is_put_aside(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    await enqueue(database, "unknown")
    await send_all(database, queue)
    stranger = {"id": "00000000-0000-4000-8000-000000000001", "name": "a", "payload": 1}
    await queue.send([NewMessage(body=json.dumps(stranger))])
    async with working(make_consumer(queue, sessions, registry(a=lambda: None))):
        await until(lambda: len(queue.dead_letters._kept) == 2 and not queue._kept)  # type: ignore[union-attr]
    assert queue.dead_letters
    found = await queue.dead_letters.receive(2)
    assert {letter.attributes["reason"] for letter in found} == {"unhandled", "unknown_session"}
    # No verdict, which nobody could compensate: it is sent again to workers that have the handler.
    await until_sessions(database, queued=1)
    (letter,) = (letter for letter in found if letter.attributes["reason"] == "unhandled")
    await queue.send([NewMessage(body=letter.body)])
    async with working(make_consumer(queue, sessions, registry(unknown=(lambda: "late", HOOKS)))):
        (row,) = await until_sessions(database, done=1)
    assert await effects(database) == [(str(row["id"]), "done")]


class Outage(SessionTable):
    """Sessions of a database that is away from time to time."""

    is_away = False
    refused = 0
    polls = 0

    async def settle(self, *values: Any, **named: Any) -> bool:
        self._raise_if_away()
        return await super().settle(*values, **named)

    async def begin(self, *values: Any, **named: Any) -> Any:
        self._raise_if_away()
        return await super().begin(*values, **named)

    async def answers(self) -> None:
        self.polls += self.is_away
        self._raise_if_away()

    def _raise_if_away(self) -> None:
        if self.is_away:
            self.refused += 1
            raise Unavailable("PostgreSQL does not answer")


async def test_a_verdict_that_cannot_be_written_is_written_later_and_the_handler_is_called_once(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    calls: list[str] = []
    away = Outage(database, "airunner")

    def paint() -> str:
        calls.append("called")
        away.is_away = len(calls) == 1
        return "a picture"

    await enqueue(database, "paint")
    await send_all(database, queue)
    consumer = make_consumer(queue, away, registry(paint=(paint, HOOKS)))
    async with working(consumer):
        await until(lambda: away.refused > 3 and away.polls > 0)
        # Whoever comes meanwhile is not received: its tries are not used up.
        await enqueue(database, "paint")
        await send_all(database, queue)
        polls = away.polls
        await until(lambda: away.polls > polls)
        assert [message.receive_count for message in queue._kept.values()] == [1, 0]
        assert calls == ["called"]
        away.is_away = False
        await until_sessions(database, done=2)
    assert len(calls) == 2
    assert [what for _, what in await effects(database)] == ["done", "done"]


@pytest.mark.parametrize(
    "way", ["raises", "exits", "is cancelled", "breaks a promise", "swallows", "rolls back", "hangs"]
)
async def test_a_hook_that_fails_is_called_again_and_nothing_of_it_happened(
    database: Database,
    sessions: SessionTable,
    queue: MemoryQueue,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("airunner.generation.sessions.HOOK_SECONDS", 0.5)
    calls: list[str] = []
    tries: list[int] = []

    def paint() -> str:
        calls.append("called")
        return "a picture"

    async def capture(connection: Any, session: Any, result: Any) -> None:
        await write_success(connection, session, result)
        tries.append(1)
        if len(tries) > 2:
            return
        if way == "raises":
            raise KeyError("credits")
        if way == "exits":
            sys.exit(3)
        if way == "is cancelled":
            # As if something that it waited for had been: nobody cancels the verdict.
            raise asyncio.CancelledError
        if way == "breaks a promise":
            # As foreign keys of Django: PostgreSQL looks when the transaction commits.
            await connection.execute(DEFERRED)
        elif way == "swallows":
            with pytest.raises(asyncpg.PostgresError):
                await connection.execute("SELECT 1 / 0")
        elif way == "rolls back":
            await connection.execute("ROLLBACK")
        else:
            await asyncio.Event().wait()

    await enqueue(database, "paint")
    await send_all(database, queue)
    handlers = registry(paint=(paint, Hooks(on_success=capture)))
    with capture_logs() as logs:
        async with working(make_consumer(queue, sessions, handlers)):
            await until_sessions(database, done=1)
    assert calls == ["called"]
    assert len(tries) == 3
    assert len(await effects(database)) == 1
    failed = [entry["error"] for entry in logs if entry["event"] == "verdict.failed"]
    assert len(failed) == 2
    assert all("paint" in error for error in failed)


async def test_one_hung_handler_of_ten_lets_nine_flow(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    free = threading.Event()

    def paint(payload: dict[str, Any]) -> None:
        if payload.get("hangs"):
            free.wait(60)

    await enqueue(database, "paint", {"hangs": True})
    for _ in range(9):
        await enqueue(database, "paint", {"n": 1})
    await send_all(database, queue)
    consumer = make_consumer(queue, sessions, registry(paint=paint), concurrency=lambda: 2)
    async with working(consumer):
        await until_sessions(database, done=9, running=1)
        free.set()
        await until_sessions(database, done=10)


async def test_a_handler_beyond_its_deadline_is_tried_again_and_keeps_its_slot(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    free = threading.Event()
    calls: list[int] = []

    def paint(ctx: Context) -> None:
        calls.append(ctx.attempt)
        if ctx.attempt == 1:
            free.wait(60)

    await enqueue(database, "paint")
    await send_all(database, queue)
    consumer = make_consumer(
        queue, sessions, registry(paint=paint), concurrency=lambda: 2, deadline_seconds=0.1
    )
    with capture_logs() as logs:
        async with working(consumer):
            await until_sessions(database, done=1)
            assert consumer._work.overdue == 1
            free.set()
            await until(lambda: consumer._work.overdue == 0)
    assert calls == [1, 2]
    (retried,) = [entry for entry in logs if entry["event"] == "job.retry"]
    assert "longer than 0.1 s" in retried["error"]


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_deadline_begins_when_the_handler_has_a_thread(
    database: Database, sessions: SessionTable, queue: MemoryQueue, is_async: bool
) -> None:
    clock, free = ManualClock(), {number: threading.Event() for number in (1, 2)}
    begun: list[int] = []

    def paint(payload: dict[str, int]) -> None:
        begun.append(payload["n"])
        free[payload["n"]].wait(60)

    async def paint_async(payload: dict[str, int]) -> None:
        # All async ones share a thread: this one keeps it to itself.
        paint(payload)

    for number in free:
        await enqueue(database, "paint", {"n": number})
    await send_all(database, queue)
    options: dict[str, Any] = {"threads": 1, "deadline_seconds": 30}
    handlers = registry(paint=paint_async if is_async else paint)
    consumer = make_consumer(queue, sessions, handlers, clock=clock, **options)
    async with working(consumer):
        await until_sessions(database, running=2)
        await until(lambda: len(begun) == 1)
        await turns()
        clock.advance(20)
        free[begun[0]].set()
        await until(lambda: len(begun) == 2)
        await until_sessions(database, running=1, done=1)
        await turns()
        for seconds in (20, 2):
            clock.advance(seconds)
            await turns()
        free[begun[1]].set()
        found = await until_sessions(database, done=2)
    assert [row["attempts"] for row in found] == [1, 1]


async def test_work_for_which_no_thread_becomes_free_is_tried_again(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    free = threading.Event()

    def paint() -> None:
        free.wait(60)

    for _ in range(2):
        await enqueue(database, "paint")
    await send_all(database, queue)
    options: dict[str, Any] = {"threads": 1, "visibility_seconds": 0.1}
    with capture_logs() as logs:
        async with working(make_consumer(queue, sessions, registry(paint=paint), **options)):
            await until(lambda: any(entry["event"] == "job.retry" for entry in logs))
            free.set()
            await until_sessions(database, done=2)
    retried = [entry for entry in logs if entry["event"] == "job.retry"]
    assert "no thread became free for the handler in 0.1 s" in retried[0]["error"]


async def test_a_handler_that_goes_on_after_its_deadline_is_heard_no_more(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    free, contexts = threading.Event(), list[Context]()

    def paint(ctx: Context) -> None:
        contexts.append(ctx)
        if ctx.attempt == 1:
            ctx.output.write("before, without an end", is_stderr=False)
            free.wait(60)

    await enqueue(database, "paint")
    await send_all(database, queue)
    consumer = make_consumer(
        queue, sessions, registry(paint=paint), concurrency=lambda: 2, deadline_seconds=0.1
    )
    with capture_logs() as logs:
        async with working(consumer):
            await until_sessions(database, done=1)
            contexts[0].log("late")
            contexts[0].progress(1, 2, "late")
            await turns()
            free.set()
            await until(lambda: consumer._work.overdue == 0)
    assert [entry["line"] for entry in logs if entry["event"] == "job.output"] == ["before, without an end"]


@pytest.mark.parametrize(
    "text",
    ["\x00 nul", "\ud800 surrogate", "x" * 1_000_000, "'; DROP TABLE outbox; --", "DLQ:a b\x00c"],
    ids=["nul", "surrogate", "long", "sql", "prefix"],
)
async def test_hostile_error_texts_harm_nobody(
    database: Database, sessions: SessionTable, queue: MemoryQueue, text: str
) -> None:
    def paint(ctx: Context) -> None:
        if ctx.attempt == 1 and not text.startswith("DLQ"):
            raise RuntimeError(text)
        raise PermanentFailure(text, text) if not text.startswith("DLQ") else RuntimeError(text)

    await enqueue(database, "paint")
    await send_all(database, queue)
    async with working(make_consumer(queue, sessions, registry(paint=(paint, HOOKS)))):
        (row,) = await until_sessions(database, failed=1)
        await until(lambda: len(queue.dead_letters._kept) == 1)  # type: ignore[union-attr]
    assert len(row["code"]) <= 64
    assert len(row["error"]) <= 2_000
    assert len(await letters(queue)) == 1


@pytest.mark.parametrize("result", ["a\x00b", 10**200_000], ids=["nul", "huge"])
async def test_a_result_that_cannot_be_kept_is_a_failure(
    database: Database, sessions: SessionTable, queue: MemoryQueue, result: object
) -> None:
    await enqueue(database, "paint")
    await send_all(database, queue)
    async with working(make_consumer(queue, sessions, registry(paint=(lambda: result, HOOKS)))):
        (row,) = await until_sessions(database, failed=1)
    assert row["code"] == "invalid_result"
    assert [what for _, what in await effects(database)] == ["failed:invalid_result"]


async def test_concurrency_goes_up_and_down_while_work_runs(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    wanted = 1
    free: dict[int, asyncio.Event] = {}

    async def paint(payload: dict[str, Any]) -> None:
        event = free[payload["n"]] = asyncio.Event()
        await event.wait()

    def let_go(number: int) -> None:
        event = free.pop(number)
        event._loop.call_soon_threadsafe(event.set)  # type: ignore[attr-defined]

    for number in range(6):
        await enqueue(database, "paint", {"n": number})
        await send_all(database, queue)
    consumer = make_consumer(queue, sessions, registry(paint=paint), concurrency=lambda: wanted)
    async with working(consumer):
        await until(lambda: len(free) == 1)
        wanted = 3
        await until(lambda: len(free) == 3)
        wanted = 1
        for number in sorted(free):
            let_go(number)
        await until(lambda: len(free) == 1)
        await until_sessions(database, done=3, running=1, queued=2)
        wanted = 10
        await until(lambda: len(free) == 3)
        for number in sorted(free):
            let_go(number)
        await until_sessions(database, done=6)


async def test_what_handlers_print_is_logged(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    def paint(ctx: Context) -> None:
        ctx.log("one", n=1)
        ctx.progress(1, 2, "half")
        ctx.output.write("two, without an end", is_stderr=True)

    session_id = await enqueue(database, "paint")
    await send_all(database, queue)
    with capture_logs() as logs:
        async with working(make_consumer(queue, sessions, registry(paint=paint))):
            await until_sessions(database, done=1)
    lines = [entry for entry in logs if entry["event"] == "job.output"]
    assert [(entry["line"], entry["stream"]) for entry in lines] == [
        ("one n=1", "stdout"),
        ("1 of 2: half", "stdout"),
        ("two, without an end", "stderr"),
    ]
    assert {entry["id"] for entry in lines} == {session_id}
    assert [entry["event"] for entry in logs if entry["event"] in {"job.start", "job.completed"}] == [
        "job.start",
        "job.completed",
    ]


async def test_postgresql_is_away_for_ten_minutes_after_the_answer_of_the_provider(
    postgres: LocalPostgres, database: Database, sessions: SessionTable
) -> None:
    """The server is killed; the ten minutes are those of the clock by which worker and queue wait."""
    clock = ManualClock()
    queue = MemoryQueue(clock, max_receive_count=5)
    calls: list[str] = []

    def paint(ctx: Context) -> str:
        calls.append(ctx.request_id)
        postgres.kill()
        return "a picture"

    session_id = await enqueue(database, "paint")
    await send_all(database, queue)
    consumer = make_consumer(queue, sessions, registry(paint=(paint, HOOKS)), clock=clock)
    with capture_logs() as logs:
        async with working(consumer):
            try:
                await until(lambda: any(entry["event"] == "verdict.failed" for entry in logs))
                for _ in range(600):
                    clock.advance(1)
                    await turns(5)
            finally:
                postgres.start()
            assert [kept.receive_count for kept in queue._kept.values()] == [1]
            while queue._kept:
                clock.advance(1)
                await asyncio.sleep(0.01)
            await until_sessions(database, done=1)
    assert calls == [session_id]
    assert await effects(database) == [(session_id, "done")]


async def test_one_poisoned_message_in_a_hundred_lets_the_others_flow(
    database: Database, sessions: SessionTable, queue: MemoryQueue
) -> None:
    def paint(payload: dict[str, Any]) -> None:
        if payload.get("poisoned"):
            raise OSError("the provider chokes on it")

    rows = [{"n": number, "poisoned": number == 50} for number in range(100)]
    async with database.transaction() as connection:
        for row in rows:
            await enqueue_generation(connection, "paint", row)
    await send_all(database, queue)
    await queue.send([NewMessage(body="no JSON")])
    # The poisoned one is tried again after a long pause, and holds up nobody meanwhile.
    policy = RetryPolicy(first_seconds=600)
    async with working(make_consumer(queue, sessions, registry(paint=paint), policy=policy)):
        await until_sessions(database, done=99, running=1)
    assert [message.receive_count for message in queue._kept.values()] == [1]
