"""Sessions and the ledger of effects in the application's database: the start of each try, and the verdict.

A verdict is one short transaction: the row of the ledger, which is there once, decides who writes it; the
images, the state of the session, what the application's hook writes, and the notification go with it.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from airunner.generation import statements
from airunner.generation.verdict import (
    GenerationFailure,
    GenerationSession,
    Settled,
    Success,
    fit_text,
    text_of,
)
from airunner.handlers.registry import NO_HOOKS, Hooks
from airunner.postgres.identifiers import quote_identifier

if TYPE_CHECKING:
    from airunner.generation.verdict import Verdict
    from airunner.postgres.pool import Database, PooledConnection

COMPLETED_CHANNEL: Final = "session_completed"
"""What a verdict notifies, with the id of the session."""
STARTED_CHANNEL: Final = "session_started"
"""What the first try notifies, with the id of the session, while somebody holds LISTENING_LOCK."""
HOOK_SECONDS: Final = 10.0
"""How long a hook may take: its transaction is open meanwhile."""


class HookFailed(Exception):
    """A hook raised, took too long, or ended the transaction that it was given: nothing of it happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunTry:
    """What was known when a try began."""

    settled: Settled
    session: GenerationSession | None = None
    failure: GenerationFailure | None = None
    """Of a session that has failed."""
    failed_at: int = 0


class SessionTable:
    """The sessions of one schema."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self._schema = quote_identifier(schema)

    async def begin(self, session_id: str, attempt: int, *, last_try: bool, lost_seconds: float) -> BegunTry:
        """Write down that a try begins, unless there is a verdict; return what is known. May be repeated.

        The first one notifies those who listen for it.
        So long after the last try that is allowed, without a verdict, the work is lost; a later try of a copy
        of the message puts that off.
        """
        values = session_id, attempt, last_try, float(lost_seconds)
        (row,) = await self._database.fetch(self._text(statements.BEGIN), *values)
        if _is_open(row) and not row["is_begun"]:
            # It waited for a verdict to be written, and saw what was before: the next look sees the verdict.
            (row,) = await self._database.fetch(self._text(statements.BEGIN), *values)
        return _begun(row, attempt)

    async def note_error(self, session_id: str, error: str) -> None:
        """Write down why a try failed after which another one follows."""
        await self._database.execute(self._text(statements.NOTE_ERROR), session_id, fit_text(error))

    async def settle(self, session_id: str, verdict: Verdict, hooks: Hooks = NO_HOOKS) -> bool:
        """Write a verdict with all that belongs to it; return False if there was one, and nothing happened.

        May be repeated when its answer was lost. HookFailed if it is the hook that failed; InvalidArgument if
        PostgreSQL cannot keep the result.
        """
        async with self._database.transaction() as connection:
            return await self.settle_in(connection, session_id, verdict, hooks)

    async def settle_in(
        self, connection: PooledConnection, session_id: str, verdict: Verdict, hooks: Hooks
    ) -> bool:
        """Do the same within a transaction of the caller."""
        rows = await connection.fetch(self._text(statements.SETTLE), *_settle_values(session_id, verdict))
        if not rows:
            return False
        if rows[0]["principal"] is not None:
            await _call_hook(connection, rows[0], verdict, hooks)
        return True

    async def note_letter(self, session_id: str) -> None:
        """Write down that the letter of a failed session is in the dead-letter queue. May be repeated."""
        await self._database.execute(self._text(statements.NOTE_LETTER), session_id)

    async def answers(self) -> None:
        """Return if PostgreSQL answers."""
        await self._database.fetch_value("SELECT 1")

    def _text(self, statement: str) -> str:
        return statements.render(statement, self._schema)


async def _call_hook(connection: PooledConnection, row: Any, verdict: Verdict, hooks: Hooks) -> None:
    """Call the hook of a verdict within its transaction, and make sure that this is still there."""
    hook = hooks.on_success if isinstance(verdict, Success) else hooks.compensate
    if hook is None:
        return
    ending = verdict.result if isinstance(verdict, Success) else verdict
    try:
        async with asyncio.timeout(HOOK_SECONDS):
            await hook(connection, read_session(row), ending)
            # What PostgreSQL would look at when the transaction commits is the hook's as well.
            await connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            # A statement that failed has undone all, whatever the hook made of its error.
            transaction = await connection.fetchval("SELECT pg_current_xact_id_if_assigned()::text")
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and _is_being_cancelled():
            raise
        raise HookFailed(f"a hook of handler {row['name']!r} failed: {text_of(error)}") from error
    if transaction != row["transaction"]:
        raise HookFailed(f"a hook of handler {row['name']!r} ended the transaction of the verdict")


def _is_being_cancelled() -> bool:
    """Return whether it is the current task that is cancelled, and not something that it waited for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _settle_values(session_id: str, verdict: Verdict) -> tuple[object, ...]:
    success = verdict if isinstance(verdict, Success) else Success()
    failure = verdict if isinstance(verdict, GenerationFailure) else GenerationFailure(code="", reason="")
    images = tuple(success.images or ())
    return (
        session_id,
        "done" if isinstance(verdict, Success) else "failed",
        failure.code,
        failure.reason,
        success.result_json or None,
        [image.location for image in images],
        [image.content_type for image in images],
        [image.byte_count for image in images],
        [bytes.fromhex(image.sha256) for image in images],
    )


def _begun(row: Any, attempt: int) -> BegunTry:
    if row["principal"] is None:
        # The ledger outlives sessions that are purged.
        return BegunTry(settled=Settled.FORWARDED if row["has_verdict"] else Settled.UNKNOWN)
    session = replace(read_session(row), attempts=max(row["attempts"], attempt))
    if _is_open(row):
        return BegunTry(settled=Settled.OPEN, session=session)
    if row["state"] == "done":
        return BegunTry(settled=Settled.DONE, session=session)
    return BegunTry(
        # Without its rows of the ledger, which are purged before it, its letter is long sent.
        settled=Settled.FORWARDED if row["has_letter"] or not row["has_verdict"] else Settled.FAILED,
        session=read_session(row),
        failure=GenerationFailure(code=row["code"], reason=row["error"]),
        failed_at=_milliseconds(row["finished_at"]) or 0,
    )


def _is_open(row: Any) -> bool:
    return row["principal"] is not None and not row["has_verdict"] and row["finished_at"] is None


def read_session(row: Any) -> GenerationSession:
    """Return the session of a row, which has its columns, `request` as text."""
    return GenerationSession(
        id=row["id"],
        principal=row["principal"],
        user_id=row["user_id"],
        name=row["name"],
        request=json.loads(row["request"]),
        attempts=row["attempts"],
        created_at=_milliseconds(row["created_at"]) or 0,
        started_at=_milliseconds(row["started_at"]),
        first_error=row["first_error"],
        last_error=row["last_error"],
    )


def _milliseconds(instant: Any) -> int | None:
    return None if instant is None else round(instant.timestamp() * 1000)
