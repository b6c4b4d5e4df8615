"""Sessions and their news as JSON, for routes and streams; requests for them as callers write them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from airunner.domain.errors import InvalidArgument
from airunner.generation.session_api.records import StartRequest

if TYPE_CHECKING:
    from airunner.generation.session_api.records import SessionNews, SessionPage, SessionView, WholeSession

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS: Final = ("name", "payload", "delay_seconds", "request_id")


def read_start(body: bytes) -> StartRequest:
    """Return the request that a body holds; unknown and repeated keys are errors, as in all of the API."""
    try:
        given = json.loads(body, object_pairs_hook=_without_repeated, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument("the body must be JSON") from error
    if not isinstance(given, dict):
        raise InvalidArgument("the body must be an object")
    unknown = given.keys() - set(_FIELDS)
    if unknown:
        raise InvalidArgument(f"{min(unknown)} is not a field; the fields are {', '.join(_FIELDS)}")
    for name in ("name", "payload"):
        if name not in given:
            raise InvalidArgument(f"{name} is missing")
    for name in ("name", "request_id"):
        if not isinstance(given.get(name, ""), str):
            raise InvalidArgument(f"{name} must be a string")
    # True is an int to Python.
    if type(given.get("delay_seconds", 0)) is not int:
        raise InvalidArgument("delay_seconds must be a whole number")
    return StartRequest(**given)


def session_to_json(session: SessionView) -> dict[str, Any]:
    """Return a session as lists show it."""
    return {
        "id": session.session_id,
        "name": session.name,
        "user_id": session.user_id,
        "state": session.state.value,
        "code": session.code,
        "error": session.error,
        "attempts": session.attempts,
        "created_at": _text_of(session.created_at),
        "finished_at": _text_of(session.finished_at),
    }


def whole_to_json(whole: WholeSession) -> dict[str, Any]:
    """Return all of a session, with its timeline."""
    return {
        **session_to_json(whole.session),
        "request": json.loads(whole.request),
        **_outcome(whole),
        "timeline": _timeline(whole.session),
    }


def page_to_json(page: SessionPage) -> dict[str, Any]:
    """Return a page of sessions."""
    return {
        "generations": [session_to_json(session) for session in page.sessions],
        "next_page_token": page.next_page_token,
    }


def news_to_json(news: SessionNews) -> str:
    """Return news on one line: who it is about, the state, and for a reader of one session its outcome."""
    session = news.session
    told: dict[str, Any] = {
        "id": session.session_id,
        "name": session.name,
        "user_id": session.user_id,
        "state": news.state.value,
        "at": _text_of(news.at),
    }
    if news.state.final:
        told |= {"code": session.code, "error": session.error, "attempts": session.attempts}
        told |= _outcome(news.whole) if news.whole else {}
    return json.dumps(told)


def _outcome(whole: WholeSession) -> dict[str, Any]:
    return {
        "result": json.loads(whole.result) if whole.result is not None else None,
        "images": json.loads(whole.images),
    }


def _timeline(session: SessionView) -> list[dict[str, str | None]]:
    """Return what happened when, in order; what did not happen is missing."""
    steps = (
        ("queued", session.created_at),
        ("sent", session.sent_at),
        ("running", session.started_at),
        (session.state.value, session.finished_at),
    )
    return [{"step": step, "at": _text_of(at)} for step, at in steps if at is not None]


def _text_of(instant: int | None) -> str | None:
    """Return an instant as RFC 3339 has it, in UTC to the millisecond."""
    if instant is None:
        return None
    moment = _EPOCH + timedelta(microseconds=instant)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _without_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InvalidArgument("the body has a key twice")
    return found


def _refuse_constant(name: str) -> None:
    raise InvalidArgument(f"{name} is not JSON")
