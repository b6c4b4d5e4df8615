"""The message that asks for one run of a housekeeping task: its form in the queue, both ways."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from airunner.domain.fleet import TaskType
from airunner.fleet.messages.fields import MessageFields, refuse
from airunner.reading.instants import to_iso

__all__ = ["HousekeepingMessage", "TaskType", "format_housekeeping", "parse_housekeeping"]

_MAX_LIMIT: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HousekeepingMessage:
    """One wish that a task is run. Two messages of one task and timestamp mean one run."""

    task_type: TaskType
    timestamp: int
    """The instant that the run is for, in Unix milliseconds."""
    dry_run: bool = False
    limit: int = 0
    """How many things the run may change at most; 0 for the task's own limit."""
    unknown_fields: tuple[str, ...] = field(default=(), compare=False)
    """The names of fields beside `params` that mean nothing here; they are counted."""

    @property
    def slot(self) -> str:
        """What names the run: a second message of the same slot finds it, and does nothing."""
        return f"{self.task_type.value}#{to_iso(self.timestamp)}"


def parse_housekeeping(body: str) -> HousekeepingMessage:
    """Return the message of a body, or raise a PermanentFailure with the code of what is wrong with it.

    That is `not_json`, `missing_field`, `bad_field`, `unknown_task` or `unknown_params`: what a parameter
    that nobody knows was meant to prevent would be done.
    """
    fields = MessageFields.parse(body)
    params = fields.nested("params")
    message = HousekeepingMessage(
        task_type=TaskType(fields.choice("task_type", {task.value for task in TaskType}, "unknown_task")),
        timestamp=fields.instant("timestamp"),
        dry_run=params.flag("dry_run", default=False),
        limit=params.integer("limit", default=0, low=0, high=_MAX_LIMIT),
        unknown_fields=fields.unknown,
    )
    if params.unknown:
        refuse("unknown_params", f"params has no {', '.join(params.unknown)[:200]}")
    return message


def format_housekeeping(message: HousekeepingMessage) -> str:
    """Return the body of a message."""
    params: dict[str, Any] = {}
    if message.dry_run:
        params["dry_run"] = True
    if message.limit:
        params["limit"] = message.limit
    values = {
        "task_type": message.task_type.value,
        "timestamp": to_iso(message.timestamp),
        "params": params,
    }
    return json.dumps(values)
