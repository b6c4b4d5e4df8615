"""What the application's database tells of an item on its way, and of those who work on it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from airunner.generation.diagnosis.hops import ItemProgress
from airunner.postgres.identifiers import quote_identifier

if TYPE_CHECKING:
    from datetime import datetime

    from airunner.postgres.pool import Database

_SAMPLES: Final = 5
_PROGRESS: Final = """\
SELECT coalesce(o.state, '') AS outbox_state, coalesce(o.reason, '') AS reason,
    coalesce(o.claimed_until > {schema}.instant(), false) AS is_claimed, o.dispatched_at,
    (SELECT count(*) FROM {schema}.outbox_relays WHERE waiting_until > {schema}.instant()) AS relays_waiting,
    s.state, s.code, s.error, s.last_error, s.attempts, s.created_at, s.started_at, s.finished_at,
    (SELECT count(*) FROM {schema}.images AS i WHERE i.session_id = s.id) AS images
FROM {schema}.generation_sessions AS s LEFT JOIN {schema}.outbox AS o USING (id)
WHERE s.id = $1::text::uuid
"""
_INSTANT: Final = "SELECT {schema}.instant()"
# Names of applications are shown to every role.
_LISTENERS: Final = """\
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1
"""


class ItemTable:
    """The rows of one item; `measure_clock` comes first."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self._schema = quote_identifier(schema)
        self._offset = 0.0
        self.clock_error = 0.0
        """By how much `at` may be wrong, in seconds."""

    async def measure_clock(self) -> None:
        """Learn what the database's clock shows, by the shortest of a few round trips."""
        loop = asyncio.get_running_loop()
        shortest = float("inf")
        for _ in range(_SAMPLES):
            before = loop.time()
            shown: datetime = await self._database.fetch_value(self._text(_INSTANT))
            after = loop.time()
            if after - before < shortest:
                shortest = self.clock_error = after - before
                self._offset = shown.timestamp() - (before + after) / 2

    def at(self, loop_time: float) -> float:
        """Return what the database's clock showed at a time of the loop, in seconds."""
        return loop_time + self._offset

    async def read(self, session_id: str) -> ItemProgress | None:
        """Return how far an item is; None if nobody knows of it here."""
        rows = await self._database.fetch(self._text(_PROGRESS), session_id)
        return _progress(rows[0]) if rows else None

    async def has_listener(self, application_name: str) -> bool:
        """Return whether a connection of this name is open in the database."""
        return bool(await self._database.fetch_value(_LISTENERS, application_name))

    def _text(self, statement: str) -> str:
        return statement.replace("{schema}", self._schema)


def _progress(row: Any) -> ItemProgress:
    return ItemProgress(
        outbox_state=row["outbox_state"],
        reason=row["reason"],
        is_claimed=row["is_claimed"],
        relays_waiting=row["relays_waiting"],
        state=row["state"],
        code=row["code"],
        error=row["error"],
        last_error=row["last_error"],
        attempts=row["attempts"],
        images=row["images"],
        created_at=row["created_at"].timestamp(),
        dispatched_at=_seconds(row["dispatched_at"]),
        started_at=_seconds(row["started_at"]),
        finished_at=_seconds(row["finished_at"]),
    )


def _seconds(instant: datetime | None) -> float | None:
    return instant.timestamp() if instant else None
