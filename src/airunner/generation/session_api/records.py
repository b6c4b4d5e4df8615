"""A session, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class SessionState(StrEnum):
    """How far a session is. It never goes back in this order, and DONE and FAILED are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"

    @property
    def final(self) -> bool:
        """Whether nothing follows."""
        return self in {SessionState.DONE, SessionState.FAILED}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """One row of `generation_sessions`. Instants are of the database's clock, in Unix microseconds."""

    session_id: str
    principal: str
    user_id: str | None
    name: str
    state: SessionState
    code: str
    error: str
    attempts: int
    created_at: int
    sent_at: int | None
    started_at: int | None
    finished_at: int | None

    @property
    def changed_at(self) -> int:
        """When it came into its state."""
        return max(self.created_at, self.started_at or 0, self.finished_at or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeSession:
    """A session with what was asked and what came of it, as texts of JSON."""

    session: SessionView
    request: str
    result: str | None
    images: str
    """A list: position, location, content type, byte count and SHA-256 of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    """Some sessions, and the token of the next page; empty after the last."""

    sessions: Sequence[SessionView]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What a caller wants done."""

    name: str
    payload: object
    delay_seconds: int = 0
    request_id: str = ""
    """Empty: a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNews:
    """A state that a session came into, and where a reader that has seen it goes on."""

    session: SessionView
    state: SessionState
    cursor: str
    whole: WholeSession | None = None
    """For readers of one session."""

    @property
    def at(self) -> int:
        """When it came into that state."""
        found = self.session.started_at if self.state is SessionState.RUNNING else self.session.finished_at
        return found or self.session.changed_at


def states_after(session: SessionView, known: SessionState) -> list[SessionState]:
    """Return what a reader who knows one state must hear of, in order: each state is told once.

    A session that was not started in between has only its end to tell.
    """
    states = []
    if known is SessionState.QUEUED and session.started_at is not None:
        states.append(SessionState.RUNNING)
    if session.state.final and not known.final:
        states.append(session.state)
    return states
