"""What a stream of sessions reads each time that its bell rings, and what of it is news to its reader."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Protocol

from airunner.domain.errors import InvalidArgument, NotFound
from airunner.generation.session_api.feed import principal_bell, session_bell
from airunner.generation.session_api.queries import FIRST_ID, LAST_INSTANT, OVERLAP_SECONDS
from airunner.generation.session_api.records import SessionNews, SessionState, states_after

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.generation.session_api.feed import SessionFeed
    from airunner.generation.session_api.queries import SessionQueries
    from airunner.generation.session_api.records import SessionView

PAGE_SESSIONS: Final = 100
_OVERLAP: Final = OVERLAP_SECONDS * 1_000_000
_NO_CURSOR: Final = "Last-Event-ID must be the id of an event of this stream"
_CURSOR: Final = re.compile(r"[0-9]{1,18}")


class SessionReader(Protocol):
    """Knows what its reader has been told."""

    bell: str
    cursor: str
    """Where a reader goes on that has been told all so far; empty if the last news says it."""
    is_over: bool
    """Whether nothing can follow."""
    has_more: bool
    """Whether the last read left something over."""

    async def read(self) -> Sequence[SessionNews]:
        """Return what is new since the last time."""


class OneSession:
    """One session until its end. A cursor is the state that was told last."""

    cursor = ""
    has_more = False

    def __init__(
        self, queries: SessionQueries, feed: SessionFeed, principal: str, session_id: str, last_seen: str
    ) -> None:
        self.bell = session_bell(session_id)
        self.is_over = False
        self._queries = queries
        self._feed = feed
        self._principal = principal
        self._session_id = session_id
        self._known = _state_of(last_seen) if last_seen else SessionState.QUEUED

    async def read(self) -> Sequence[SessionNews]:
        """Return the states that it came into; NotFound if there is no such session of the principal."""
        whole = await self._queries.find(self._session_id, self._principal)
        if whole is None:
            raise NotFound("there is no such generation")
        session = whole.session
        self._feed.saw(self.bell, [session])
        states = states_after(session, self._known)
        self._known = states[-1] if states else self._known
        self.is_over = session.state.final
        return [SessionNews(session=session, state=state, cursor=state, whole=whole) for state in states]


class AllSessions:
    """All sessions of a principal, for ever. A cursor is an instant of the database's clock.

    Each round reads from a minute before the round before it, since a change shows only when it is committed,
    and tells what it has not told yet.
    """

    is_over = False

    def __init__(self, queries: SessionQueries, feed: SessionFeed, principal: str, last_seen: str) -> None:
        self.bell = principal_bell(principal)
        self.cursor = ""
        self.has_more = False
        self._queries = queries
        self._feed = feed
        self._principal = principal
        # What there is when a stream begins anew is no news.
        self._is_silent = not last_seen
        self._since = max(0, _instant_of(last_seen) - _OVERLAP) if last_seen else None
        self._position: tuple[int, str] | None = None if self._since is None else (self._since, FIRST_ID)
        self._told: dict[str, tuple[SessionState, int]] = {}

    async def read(self) -> Sequence[SessionNews]:
        """Return the next portion of a round."""
        changes = await self._queries.changes(self._principal, self._position, PAGE_SESSIONS)
        news = [found for session in changes.sessions for found in self._news(session)]
        self._feed.saw(self.bell, changes.sessions)
        told = [] if self._is_silent else news
        self.has_more = len(changes.sessions) == PAGE_SESSIONS
        if self.has_more:
            last = changes.sessions[-1]
            self._position = (last.changed_at, last.session_id)
        else:
            self._end_round(changes.at)
        return told

    def _news(self, session: SessionView) -> list[SessionNews]:
        states = states_after(session, self._known(session))
        self._told[session.session_id] = (session.state, session.changed_at)
        cursor = str(session.changed_at)
        return [SessionNews(session=session, state=state, cursor=cursor) for state in states]

    def _known(self, session: SessionView) -> SessionState:
        told = self._told.get(session.session_id)
        if told:
            return told[0]
        # A start before the round was told in its time, or before the reader came.
        is_old = session.started_at is not None and session.started_at < (self._since or 0)
        return SessionState.RUNNING if is_old else SessionState.QUEUED

    def _end_round(self, now: int) -> None:
        self._is_silent = False
        self.cursor = str(now)
        self._since = now - _OVERLAP
        self._position = (self._since, FIRST_ID)
        self._told = {key: told for key, told in self._told.items() if told[1] >= self._since}


def _state_of(cursor: str) -> SessionState:
    try:
        return SessionState(cursor)
    except ValueError:
        raise InvalidArgument(_NO_CURSOR) from None


def _instant_of(cursor: str) -> int:
    if not _CURSOR.fullmatch(cursor) or int(cursor) > LAST_INSTANT:
        raise InvalidArgument(_NO_CURSOR)
    return int(cursor)
