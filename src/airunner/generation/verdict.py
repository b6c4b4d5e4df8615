"""How work of the generation queue ends: what a session is, what a verdict says, and when there is one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from airunner.domain.errors import PermanentFailure, error_text, message_of, permanent_failure
from airunner.handlers.arguments import INVALID_RESULT
from airunner.handlers.images import Images

EXHAUSTED: Final = "exhausted"
"""The code of work whose last try raised an error that is not permanent."""
TIMEOUT: Final = "timeout"
"""The code of work whose last try took longer than the deadline of handlers."""
LOST: Final = "lost"
"""The code of work whose last try ended without a word, or whose job ended without a verdict."""
_MAX_CODE: Final = 64
_MAX_TEXT: Final = 2_000
# PostgreSQL has no NUL in texts, UTF-8 no surrogates; other control characters help nobody who reads it.
_UNFIT: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationSession:
    """One piece of work of the generation queue, as hooks see it."""

    id: str
    """Of the session, its row in the outbox, its request, and the key of its effects."""
    principal: str
    """Who enqueued it: an API key's name, or `sql:` and a user of the database."""
    user_id: str | None
    """What the payload has under this key, if it is an object."""
    name: str
    """Of the handler."""
    request: Any
    """The payload."""
    attempts: int
    """How often it was tried."""
    created_at: int
    """When it was enqueued, in Unix milliseconds."""
    started_at: int | None = None
    """When its first try began."""
    first_error: str = ""
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFailure:
    """Why work of the generation queue failed for good."""

    code: str
    """A word for programs: the code of the PermanentFailure, or `exhausted`, `timeout`, `lost`."""
    reason: str
    """A sentence for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Success:
    """What a handler returned."""

    result_json: str = ""
    """JSON; empty for None, and for images."""
    images: Images | None = None

    @property
    def result(self) -> object:
        """The result as `on_success` gets it: a JSON value, None, or Images."""
        return self.images if self.images is not None else json.loads(self.result_json or "null")


Verdict: TypeAlias = Success | GenerationFailure


class Settled(Enum):
    """What is known of the end of a session before a try."""

    OPEN = "open"
    DONE = "done"
    FAILED = "failed"
    """There is a verdict; its letter may not have been sent."""
    FORWARDED = "forwarded"
    """It failed, and its letter is in the dead-letter queue."""
    UNKNOWN = "unknown"
    """There is no such session, and never was one that we know of."""


class TimedOut(Exception):
    """A handler took longer than its deadline."""


class GenerationFailed(PermanentFailure):
    """Raised for work that has failed for good, once its verdict is written."""

    def __init__(self, session: GenerationSession, failure: GenerationFailure, failed_at: int) -> None:
        super().__init__(failure.code, failure.reason)
        self.session = session
        self.failure = failure
        self.failed_at = failed_at


def read_success(result_json: str) -> Success | GenerationFailure:
    """Return what a handler's result means; a GenerationFailure if it cannot be kept."""
    try:
        images = Images.from_json(json.loads(result_json or "null"))
    except (ValueError, RecursionError) as error:
        return GenerationFailure(code=INVALID_RESULT, reason=fit_text(message_of(error)))
    return Success(images=images) if images is not None else Success(result_json=result_json)


def judge_error(error: Exception, *, is_last_try: bool) -> GenerationFailure | None:
    """Return the failure that an error of a handler means; None if the work is to be tried again."""
    if failure := permanent_failure(error):
        return GenerationFailure(code=fit_code(failure.code), reason=fit_text(message_of(failure)))
    if not is_last_try:
        return None
    return GenerationFailure(
        code=TIMEOUT if isinstance(error, TimedOut) else EXHAUSTED, reason=text_of(error)
    )


def text_of(error: BaseException) -> str:
    """Return what is kept of an error."""
    return fit_text(error_text(error))


def fit_text(text: str) -> str:
    """Return a text as it can be stored and sent, whatever it holds; not longer than 2,000 characters."""
    return _UNFIT.sub("\ufffd", text[:_MAX_TEXT])


def fit_code(code: object) -> str:
    """Return a code as a bounded word; whoever raised it may have written anything."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", str(code))[:_MAX_CODE] or "permanent"
