"""What relays and operators ask of the outbox: each question is one statement, and one short transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID, uuid5

from airunner.outbox import statements
from airunner.outbox.rows import ClaimedRow
from airunner.postgres.identifiers import quote_identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.postgres.pool import Database

CLAIM_SECONDS: Final = 120
"""How long nobody else sends what a relay has claimed."""
MAX_CLAIMED_ROWS: Final = 1_000
WAITING_SECONDS: Final = 10
"""How long an enqueue believes a relay that said it waits."""
COUNT_LIMIT: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is written down of a row after a try."""

    row_id: str
    state: str = "pending"
    reason: str = ""
    attempts: int = 0
    """How many refusals to add."""
    pause_seconds: float = 0.0
    """How long it rests; at 0 it stays due."""
    sink_ref: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxStatus:
    """How much there is; numbers stop at COUNT_LIMIT."""

    pending: int
    parked: int
    open: int
    """Sent, and without a verdict."""
    oldest_due_seconds: float
    """For how long the oldest pending row could have been sent."""
    relays_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedRow:
    """A row that no relay sends any more."""

    row_id: str
    queue: str
    name: str
    reason: str
    attempts: int
    created_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """Work that is done once more."""

    row_id: str
    is_new: bool
    """Whether it was enqueued now, and not by an earlier call."""


class OutboxTable:
    """The outbox of one schema."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self._schema = quote_identifier(schema)
        self._texts: dict[str, str] = {}

    async def claim(self, max_rows: int, *, without_queues: Sequence[str] = ()) -> list[ClaimedRow]:
        """Claim rows that are due, up to so many of each queue, those first that are due longest.

        What others hold is passed over. At most MAX_CLAIMED_ROWS are claimed of all queues together.
        """
        found = await self._database.fetch(
            self._text(statements.CLAIM),
            max_rows,
            list(without_queues),
            float(CLAIM_SECONDS),
            MAX_CLAIMED_ROWS,
        )
        return [
            ClaimedRow(
                row_id=row["id"],
                queue=row["queue"],
                name=row["name"],
                body=row["body"],
                attempts=row["attempts"],
            )
            for row in found
        ]

    async def mark(self, marks: Sequence[Mark]) -> None:
        """Write down what became of claimed rows, and give their claims up. May be repeated."""
        await self._database.execute(
            self._text(statements.MARK),
            [mark.row_id for mark in marks],
            [mark.state for mark in marks],
            [mark.reason for mark in marks],
            [mark.attempts for mark in marks],
            [mark.pause_seconds for mark in marks],
            [mark.sink_ref for mark in marks],
        )

    async def set_waiting(self, relay_id: str) -> None:
        """Have enqueues send a notification from now on, for WAITING_SECONDS; may be repeated."""
        await self._database.execute(self._text(statements.SET_WAITING), relay_id, float(WAITING_SECONDS))

    async def stop_waiting(self, relay_id: str) -> None:
        """Take that back."""
        await self._database.execute(self._text(statements.STOP_WAITING), relay_id)

    async def status(self) -> OutboxStatus:
        """Count what there is."""
        (row,) = await self._database.fetch(self._text(statements.STATUS), COUNT_LIMIT)
        return OutboxStatus(
            pending=row["pending"],
            parked=row["parked"],
            open=row["open"],
            oldest_due_seconds=row["oldest_due_seconds"] or 0.0,
            relays_waiting=row["relays_waiting"],
        )

    async def parked(self, max_rows: int) -> list[ParkedRow]:
        """Return parked rows, the oldest first."""
        found = await self._database.fetch(self._text(statements.PARKED), max_rows)
        return [
            ParkedRow(
                row_id=row["id"],
                queue=row["queue"],
                name=row["name"],
                reason=row["reason"],
                attempts=row["attempts"],
                created_at=int(row["created_at"].timestamp() * 1000),
            )
            for row in found
        ]

    async def retry(self, row_ids: Sequence[str] | None) -> list[str]:
        """Have parked rows sent again, all of them for None; return those that were parked."""
        found = await self._database.fetch(
            self._text(statements.RETRY), None if row_ids is None else list(row_ids)
        )
        return [row["id"] for row in found]

    async def rerun(self, row_id: str) -> Rerun | None:
        """Enqueue the work of a row again under an id of its own; None if there is no such row.

        Where the row is purged and its session is left, that is enough. Repeated, it finds what it enqueued
        before, and enqueues nothing: the id follows from that of the row.
        """
        content = await self._content(row_id)
        if content is None:
            return None
        principal, queue, name, payload = content
        new_id = str(uuid5(UUID(row_id), "rerun"))
        (found,) = await self._database.fetch(
            self._text(statements.RERUN), principal, name, payload, queue, new_id
        )
        return Rerun(row_id=found["id"], is_new=found["is_new"])

    async def _content(self, row_id: str) -> tuple[str, str, str, str] | None:
        """Return principal, queue, name and payload."""
        rows = await self._database.fetch(self._text(statements.FIND), row_id)
        sessions = await self._database.fetch(self._text(statements.FIND_SESSION), row_id)
        if not rows and not sessions:
            return None
        found = (rows or sessions)[0]
        principal = sessions[0]["principal"] if sessions else "outbox"
        queue = rows[0]["queue"] if rows else "generation"
        return principal, queue, found["name"], found["payload"]

    def _text(self, statement: str) -> str:
        text = self._texts.get(statement)
        if text is None:
            text = self._texts[statement] = statements.render(statement, self._schema)
        return text
