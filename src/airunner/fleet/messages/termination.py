"""The message by which a runner reports that an attempt has ended: its form in the queue, both ways."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from airunner.fleet.messages.fields import MessageFields, refuse
from airunner.reading.instants import to_iso

_MAX_TEXT: Final = 256 * 1024
_MAX_ATTEMPT: Final = 2**31 - 1


class EndStatus(Enum):
    """How an attempt ended, as its runner saw it."""

    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    """Also of an attempt that was cancelled or superseded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminationMessage:
    """The end of one attempt on one instance. Instants are Unix milliseconds of the runner's clock."""

    instance_id: str
    job_id: str
    """A UUID, or whatever else an agent calls a job: that one is unknown."""
    status: EndStatus
    exit_code: int
    duration_seconds: float
    started_at: int
    completed_at: int
    error: str = ""
    attempt: int = 0
    """0 where an agent knows of no attempts."""
    termination_token: str = field(default="", repr=False)
    """Proves that the message is of the instance that had the attempt; see `domain.token`."""
    is_handler: bool = False
    """Whether the job was a call of a handler; agents that know of none say nothing."""
    unknown_fields: tuple[str, ...] = field(default=(), compare=False)
    """The names of fields that a newer runner sends; they are counted, and mean nothing here."""


def parse_termination(body: str) -> TerminationMessage:
    """Return the message of a body, or raise a PermanentFailure with the code of what is wrong with it.

    That is `not_json`, `missing_field`, `bad_field`, `unknown_status`, `duration`, and for what contradicts
    itself `exit_code` (a success that exited with another code than 0) and `times` (an end before its start).
    """
    fields = MessageFields.parse(body)
    message = TerminationMessage(
        instance_id=fields.instance_id("instance_id"),
        job_id=fields.text("job_id"),
        status=EndStatus(fields.choice("status", {status.value for status in EndStatus}, "unknown_status")),
        exit_code=fields.integer("exit_code"),
        duration_seconds=fields.seconds("duration_seconds"),
        started_at=fields.instant("started_at"),
        completed_at=fields.instant("completed_at"),
        error=fields.text("error", default="", max_length=_MAX_TEXT),
        attempt=fields.integer("attempt", default=0, low=0, high=_MAX_ATTEMPT),
        termination_token=fields.text("termination_token", default=""),
        is_handler=fields.flag("is_handler", default=False),
        unknown_fields=fields.unknown,
    )
    if message.status is EndStatus.SUCCESS and message.exit_code:
        refuse("exit_code", f"a success has exit code 0, not {message.exit_code}")
    if message.completed_at < message.started_at:
        refuse("times", "completed_at is before started_at")
    return message


def format_termination(message: TerminationMessage, *, with_token: bool = True) -> str:
    """Return the body of a message; what is logged of one has no token."""
    values: dict[str, Any] = {
        "instance_id": message.instance_id,
        "job_id": message.job_id,
        "status": message.status.value,
        "exit_code": message.exit_code,
        "duration_seconds": message.duration_seconds,
        "started_at": to_iso(message.started_at),
        "completed_at": to_iso(message.completed_at),
    }
    if message.error:
        values["error"] = message.error
    if message.attempt:
        values["attempt"] = message.attempt
    if message.is_handler:
        values["is_handler"] = True
    if message.termination_token and with_token:
        values["termination_token"] = message.termination_token
    return json.dumps(values)
