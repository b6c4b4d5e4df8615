"""What servers ask of sessions: each question is one statement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from airunner.generation.session_api.records import SessionState, SessionView, WholeSession
from airunner.postgres.identifiers import quote_identifier

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airunner.postgres.pool import Database

OVERLAP_SECONDS: Final = 60
"""How late a change may be seen: it has the instant of its statement, and shows when it is committed."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_COLUMNS: Final = """\
s.id::text, s.principal, s.user_id, s.name, s.state, s.code, s.error, s.attempts,
    s.created_at, s.sent_at, s.started_at, s.finished_at"""
# As its index has it.
_CHANGED: Final = "greatest(s.created_at, s.started_at, s.finished_at)"
_START: Final = """\
SELECT {schema}.enqueue_as($1, $2, $3::text::jsonb, 'generation', $4::integer, $5::text::uuid)::text
"""
_FIND: Final = f"""\
SELECT {_COLUMNS}, s.request::text, s.result::text, coalesce((
    SELECT jsonb_agg(jsonb_build_object('position', i.position, 'location', i.place,
        'content_type', i.content_type, 'byte_count', i.bytes, 'sha256', encode(i.sha256, 'hex'))
        ORDER BY i.position)
    FROM {{schema}}.images AS i WHERE i.session_id = s.id
), '[]')::text AS images
FROM {{schema}}.generation_sessions AS s WHERE s.id = $1::text::uuid AND s.principal = $2
"""  # noqa: S608  names of ours
_PAGE: Final = f"""\
SELECT {_COLUMNS} FROM {{schema}}.generation_sessions AS s
WHERE s.principal = $1 AND s.created_at <= $2 AND (s.created_at, s.id) < ($2, $3::text::uuid)
ORDER BY s.created_at DESC, s.id DESC LIMIT $4
"""  # noqa: S608  names of ours
_CHANGES: Final = f"""\
SELECT n.now, found.* FROM (SELECT {{schema}}.instant() AS now) AS n LEFT JOIN LATERAL (
    SELECT {_COLUMNS} FROM {{schema}}.generation_sessions AS s
    WHERE s.principal = $1 AND {_CHANGED} >= coalesce($2, n.now - make_interval(secs => $5))
        AND ({_CHANGED}, s.id) > (coalesce($2, '-infinity'), $3::text::uuid)
    ORDER BY {_CHANGED}, s.id LIMIT $4
) AS found ON true
"""  # noqa: S608  names of ours
_LOOK: Final = f"""\
SELECT n.now, found.* FROM (SELECT {{schema}}.instant() AS now) AS n LEFT JOIN LATERAL (
    SELECT s.id::text, s.principal, s.state, {_CHANGED} AS changed_at
    FROM {{schema}}.generation_sessions AS s WHERE s.id = ANY ($1::text[]::uuid[])
    UNION
    SELECT s.id::text, s.principal, s.state, {_CHANGED}
    FROM {{schema}}.generation_sessions AS s
    WHERE s.principal = ANY ($2::text[])
        AND {_CHANGED} >= coalesce($3, n.now) - make_interval(secs => $4)
) AS found ON true
"""  # noqa: S608  names of ours
FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
LAST_INSTANT: Final = 253_402_300_799_999_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Sessions that changed, those first that changed first, and when that was asked."""

    sessions: Sequence[SessionView]
    at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """The state of a session that somebody watches, or whose principal does."""

    session_id: str
    principal: str
    state: SessionState
    changed_at: int


class SessionQueries:
    """The sessions of one schema."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self._schema = quote_identifier(schema)

    async def start(self, principal: str, name: str, payload: str, delay: int, session_id: str) -> None:
        """Write a session and its row of the outbox; AlreadyExists where the id has other content."""
        await self._database.fetch_value(self._text(_START), principal, name, payload, delay, session_id)

    async def find(self, session_id: str, principal: str) -> WholeSession | None:
        """Return a session of a principal, as it is at one instant; None if there is none."""
        rows = await self._database.fetch(self._text(_FIND), session_id, principal)
        if not rows:
            return None
        (row,) = rows
        return WholeSession(
            session=_session(row), request=row["request"], result=row["result"], images=row["images"]
        )

    async def page(self, principal: str, before: tuple[int, str], limit: int) -> list[SessionView]:
        """Return sessions of a principal that are older than an instant and an id, the newest first."""
        at, session_id = before
        rows = await self._database.fetch(self._text(_PAGE), principal, _moment(at), session_id, limit)
        return [_session(row) for row in rows]

    async def changes(self, principal: str, after: tuple[int, str] | None, limit: int) -> Changes:
        """Return sessions of a principal that changed after an instant and an id; else, lately."""
        at, session_id = after or (None, FIRST_ID)
        rows = await self._database.fetch(
            self._text(_CHANGES),
            principal,
            None if at is None else _moment(at),
            session_id,
            limit,
            float(OVERLAP_SECONDS),
        )
        return Changes(sessions=[_session(row) for row in rows if row["id"]], at=_instant(rows[0]["now"]))

    async def look(
        self, session_ids: Collection[str], principals: Collection[str], since: int | None
    ) -> tuple[list[Sighting], int]:
        """Return these sessions, and those of the principals that changed since; and when that was asked."""
        rows = await self._database.fetch(
            self._text(_LOOK),
            list(session_ids),
            list(principals),
            None if since is None else _moment(since),
            float(OVERLAP_SECONDS),
        )
        found = [
            Sighting(
                session_id=row["id"],
                principal=row["principal"],
                state=SessionState(row["state"]),
                changed_at=_instant(row["changed_at"]),
            )
            for row in rows
            if row["id"]
        ]
        return found, _instant(rows[0]["now"])

    def _text(self, statement: str) -> str:
        return statement.replace("{schema}", self._schema)


def _session(row: Any) -> SessionView:
    return SessionView(
        session_id=row["id"],
        principal=row["principal"],
        user_id=row["user_id"],
        name=row["name"],
        state=SessionState(row["state"]),
        code=row["code"],
        error=row["error"],
        attempts=row["attempts"],
        created_at=_instant(row["created_at"]),
        sent_at=_instant_or_none(row["sent_at"]),
        started_at=_instant_or_none(row["started_at"]),
        finished_at=_instant_or_none(row["finished_at"]),
    )


def _instant(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND


def _instant_or_none(moment: datetime | None) -> int | None:
    return None if moment is None else _instant(moment)


def _moment(instant: int) -> datetime:
    return _EPOCH + instant * _MICROSECOND
