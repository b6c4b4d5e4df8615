"""What is in the messages of the generation queue, and in the letters of its dead-letter queue."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airunner.domain.errors import InvalidArgument
from airunner.domain.limits import check_uuid
from airunner.queues.messages import UnhandledMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airunner.generation.verdict import GenerationFailed
    from airunner.handlers.registry import Handler


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkRequest:
    """What a message says."""

    id: str
    handler: Handler
    payload_json: str


def read_body(body: str, handlers: Mapping[str, Handler]) -> WorkRequest:
    """Return what a message asks for; UnhandledMessage if nobody here does that, ValueError if nothing."""
    value = json.loads(body)
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or "payload" not in value:
        raise ValueError("the body must be an object with id, name and payload")
    try:
        checked_id = check_uuid(str(value.get("id")), "id")
    except InvalidArgument as error:
        raise ValueError(error.text) from None
    handler = handlers.get(value["name"])
    if handler is None:
        raise UnhandledMessage(f"there is no handler {value['name']!r}")
    return WorkRequest(id=checked_id, handler=handler, payload_json=json.dumps(value["payload"]))


def letter_of(failed: GenerationFailed) -> str:
    """Return the body of the letter about work that failed: what was asked, and what became of it."""
    session, failure = failed.session, failed.failure
    letter: dict[str, Any] = {
        "id": session.id,
        "name": session.name,
        "payload": session.request,
        "failure": {
            "code": failure.code,
            "reason": failure.reason,
            "handler": session.name,
            "attempts": session.attempts,
            "first_error": session.first_error or failure.reason,
            "last_error": failure.reason,
            "created_at": session.created_at,
            "started_at": session.started_at,
            "failed_at": failed.failed_at,
        },
    }
    # In ASCII: SQS refuses some characters, and escaped they are none.
    return json.dumps(letter)
