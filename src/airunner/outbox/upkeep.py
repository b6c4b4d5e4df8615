"""What relays do beside sending, one at a time: send again what nobody answered, and purge what is over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner.postgres.identifiers import quote_identifier
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.postgres.pool import Database

_log = get_logger("airunner.outbox")

RESEND_HOURS: Final = 72
"""After how long a row of the generation queue is sent again for which there is no verdict."""
ROW_DAYS: Final = 7
"""How long a row stays after its verdict; one of a queue that gives none, after it was sent."""
LEDGER_DAYS: Final = 60
_PORTION: Final = 1_000
_MAX_PORTIONS: Final = 50
# Of all that airunner may ever lock in a database of somebody else.
_LOCK: Final = 0x6169_7275_6E02

_RESEND: Final = """\
UPDATE {schema}.outbox SET state = 'pending', due_at = {schema}.instant(), claimed_until = NULL
WHERE id IN (
    SELECT id FROM {schema}.outbox
    WHERE state = 'dispatched' AND verdict_at IS NULL AND queue = 'generation'
        AND dispatched_at <= {schema}.instant() - make_interval(hours => $2)
    ORDER BY dispatched_at LIMIT $1 FOR UPDATE SKIP LOCKED
)
"""
_PURGE_SETTLED: Final = """\
DELETE FROM {schema}.outbox WHERE id IN (
    SELECT id FROM {schema}.outbox WHERE verdict_at <= {schema}.instant() - make_interval(days => $2) LIMIT $1
)
"""
_PURGE_SENT: Final = """\
DELETE FROM {schema}.outbox WHERE id IN (
    SELECT id FROM {schema}.outbox
    WHERE state = 'dispatched' AND verdict_at IS NULL AND queue <> 'generation'
        AND dispatched_at <= {schema}.instant() - make_interval(days => $2)
    LIMIT $1
)
"""
_PURGE_LEDGER: Final = """\
DELETE FROM {schema}.outbox_effects WHERE (outbox_id, kind) IN (
    SELECT outbox_id, kind FROM {schema}.outbox_effects
    WHERE at <= {schema}.instant() - make_interval(days => $2) LIMIT $1
)
"""
_PURGE_SESSIONS: Final = """\
DELETE FROM {schema}.generation_sessions WHERE id IN (
    SELECT id FROM {schema}.generation_sessions
    WHERE finished_at <= {schema}.instant() - make_interval(days => $2) LIMIT $1
)
"""
_PURGE_RELAYS: Final = """\
DELETE FROM {schema}.outbox_relays WHERE relay_id IN (
    SELECT relay_id FROM {schema}.outbox_relays
    WHERE waiting_until <= {schema}.instant() - make_interval(hours => $2) LIMIT $1
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepDone:
    """How many rows one pass changed."""

    resent: int = 0
    purged: int = 0


class OutboxUpkeep:
    """One pass at a time over all relays: while another does it, a pass does nothing."""

    def __init__(self, database: Database, schema: str, *, session_days: int = 0) -> None:
        self._database = database
        self._schema = quote_identifier(schema)
        self._session_days = session_days

    async def run_once(self) -> UpkeepDone:
        """Do what is due, in portions, each a short transaction. May be repeated, and stopped anywhere."""
        resent = await self._in_portions(_RESEND, RESEND_HOURS)
        purged = 0
        for statement, age in (
            (_PURGE_SETTLED, ROW_DAYS),
            (_PURGE_SENT, ROW_DAYS),
            (_PURGE_LEDGER, LEDGER_DAYS),
            (_PURGE_SESSIONS, self._session_days),
            (_PURGE_RELAYS, 1),
        ):
            if age:
                purged += await self._in_portions(statement, age)
        if resent:
            _log.warning("outbox.resent", rows=resent, hours=RESEND_HOURS)
        return UpkeepDone(resent=resent, purged=purged)

    async def _in_portions(self, statement: str, age: int) -> int:
        changed = 0
        text = statement.replace("{schema}", self._schema)
        for _ in range(_MAX_PORTIONS):
            portion = await self._portion(text, age)
            changed += portion
            if portion < _PORTION:
                break
        return changed

    async def _portion(self, text: str, age: int) -> int:
        async with self._database.transaction() as connection:
            if not await connection.fetchval("SELECT pg_try_advisory_xact_lock($1)", _LOCK):
                return 0
            status = await connection.execute(text, _PORTION, age)
        return int(status.rpartition(" ")[2])
