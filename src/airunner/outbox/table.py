"""What relays and operators ask of the outbox: each question is one statement, and one short transaction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner.outbox.rows import ClaimedRow
from airunner.postgres.identifiers import quote_identifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.postgres.pool import Database

CLAIM_SECONDS: Final = 120
"""How long nobody else sends what a relay has claimed."""
WAITING_SECONDS: Final = 10
"""How long an enqueue believes a relay that said it waits."""

_CLAIM: Final = """\
WITH due AS (
    SELECT id FROM {schema}.outbox
    WHERE state = 'pending' AND due_at <= {schema}.instant()
        AND (claimed_until IS NULL OR claimed_until <= {schema}.instant()) AND queue <> ALL ($2::text[])
    ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE {schema}.outbox AS o SET claimed_until = {schema}.instant() + make_interval(secs => $3)
FROM due WHERE o.id = due.id
RETURNING o.id::text, o.queue, o.name, o.payload::text AS body, o.attempts
"""
# A row that was sent is sent, whoever holds the claim by now; what is less than that counts only while it is
# pending.
_MARK: Final = """\
WITH mark AS (
    SELECT * FROM unnest(
        $1::text[], $2::text[], $3::text[], $4::integer[], $5::double precision[], $6::text[]
    ) AS m (id, state, reason, attempts, pause, sink_ref)
), marked AS (
    UPDATE {schema}.outbox AS o SET
        state = m.state,
        reason = m.reason,
        attempts = o.attempts + m.attempts,
        due_at = CASE WHEN m.pause > 0
            THEN {schema}.instant() + make_interval(secs => m.pause) ELSE o.due_at END,
        claimed_until = NULL,
        dispatched_at = CASE WHEN m.state = 'dispatched' THEN {schema}.instant() ELSE o.dispatched_at END,
        sink_ref = CASE WHEN m.state = 'dispatched' THEN m.sink_ref ELSE o.sink_ref END
    FROM mark AS m WHERE o.id = m.id::uuid AND o.state = 'pending'
    RETURNING o.id, o.queue, o.state
)
UPDATE {schema}.generation_sessions AS s SET sent_at = {schema}.instant(), version = s.version + 1
FROM marked AS m WHERE m.queue = 'generation' AND m.state = 'dispatched' AND s.id = m.id AND s.sent_at IS NULL
"""
_SET_WAITING: Final = """\
INSERT INTO {schema}.outbox_relays (relay_id, waiting_until)
VALUES ($1, {schema}.instant() + make_interval(secs => $2))
ON CONFLICT (relay_id) DO UPDATE SET waiting_until = EXCLUDED.waiting_until
"""
_STOP_WAITING: Final = "DELETE FROM {schema}.outbox_relays WHERE relay_id = $1"
# Counting stops somewhere, so that a backlog does not make it slow.
_STATUS: Final = """\
SELECT
    (SELECT count(*) FROM (SELECT FROM {schema}.outbox WHERE state = 'pending' LIMIT $1) AS p) AS pending,
    (SELECT count(*) FROM (SELECT FROM {schema}.outbox WHERE state = 'parked' LIMIT $1) AS p) AS parked,
    (SELECT count(*) FROM (SELECT FROM {schema}.outbox
        WHERE state = 'dispatched' AND verdict_at IS NULL LIMIT $1) AS p) AS open,
    (SELECT greatest(0, extract(epoch FROM {schema}.instant() - min(due_at)))::double precision
        FROM {schema}.outbox WHERE state = 'pending') AS oldest_due_seconds,
    (SELECT count(*) FROM {schema}.outbox_relays WHERE waiting_until > {schema}.instant()) AS relays_waiting
"""
_PARKED: Final = """\
SELECT id::text, queue, name, reason, attempts, created_at FROM {schema}.outbox
WHERE state = 'parked' ORDER BY created_at LIMIT $1
"""
_RETRY: Final = """\
UPDATE {schema}.outbox SET state = 'pending', reason = '', attempts = 0, due_at = {schema}.instant(),
    claimed_until = NULL
WHERE state = 'parked' AND ($1::text[] IS NULL OR id::text = ANY ($1::text[]))
RETURNING id::text
"""
_FIND: Final = """\
SELECT queue, name, (payload -> 'payload')::text AS payload FROM {schema}.outbox WHERE id = $1::text::uuid
"""
_FIND_SESSION: Final = """\
SELECT principal, name, request::text AS payload FROM {schema}.generation_sessions WHERE id = $1::text::uuid
"""
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


class OutboxTable:
    """The outbox of one schema."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self._schema = quote_identifier(schema)
        self._texts: dict[str, str] = {}

    async def claim(self, max_rows: int, *, without_queues: Sequence[str] = ()) -> list[ClaimedRow]:
        """Claim rows that are due, those that are due longest first; what others hold is passed over."""
        found = await self._database.fetch(
            self._text(_CLAIM), max_rows, list(without_queues), float(CLAIM_SECONDS)
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
            self._text(_MARK),
            [mark.row_id for mark in marks],
            [mark.state for mark in marks],
            [mark.reason for mark in marks],
            [mark.attempts for mark in marks],
            [mark.pause_seconds for mark in marks],
            [mark.sink_ref for mark in marks],
        )

    async def set_waiting(self, relay_id: str) -> None:
        """Have enqueues send a notification from now on, for WAITING_SECONDS; may be repeated."""
        await self._database.execute(self._text(_SET_WAITING), relay_id, float(WAITING_SECONDS))

    async def stop_waiting(self, relay_id: str) -> None:
        """Take that back."""
        await self._database.execute(self._text(_STOP_WAITING), relay_id)

    async def status(self) -> OutboxStatus:
        """Count what there is."""
        (row,) = await self._database.fetch(self._text(_STATUS), COUNT_LIMIT)
        return OutboxStatus(
            pending=row["pending"],
            parked=row["parked"],
            open=row["open"],
            oldest_due_seconds=row["oldest_due_seconds"] or 0.0,
            relays_waiting=row["relays_waiting"],
        )

    async def parked(self, max_rows: int) -> list[ParkedRow]:
        """Return parked rows, the oldest first."""
        found = await self._database.fetch(self._text(_PARKED), max_rows)
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
        found = await self._database.fetch(self._text(_RETRY), None if row_ids is None else list(row_ids))
        return [row["id"] for row in found]

    async def rerun(self, row_id: str) -> str | None:
        """Enqueue the work of a row again under a new id, which is returned; None if there is no such row.

        Where the row is purged and its session is left, that is enough.
        """
        content = await self._content(row_id)
        if content is None:
            return None
        principal, queue, name, payload = content
        statement = self._text("SELECT {schema}.enqueue_as($1, $2, $3::text::jsonb, $4)::text")
        return str(await self._database.fetch_value(statement, principal, name, payload, queue))

    async def _content(self, row_id: str) -> tuple[str, str, str, str] | None:
        """Return principal, queue, name and payload."""
        rows = await self._database.fetch(self._text(_FIND), row_id)
        sessions = await self._database.fetch(self._text(_FIND_SESSION), row_id)
        if not rows and not sessions:
            return None
        found = (rows or sessions)[0]
        principal = sessions[0]["principal"] if sessions else "outbox"
        queue = rows[0]["queue"] if rows else "generation"
        return principal, queue, found["name"], found["payload"]

    def _text(self, statement: str) -> str:
        text = self._texts.get(statement)
        if text is None:
            text = self._texts[statement] = statement.replace("{schema}", self._schema)
        return text
