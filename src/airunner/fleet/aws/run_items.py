"""Runs and audits as items: one JSON text each, since nobody asks for a part of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from airunner.fleet.messages.housekeeping import TaskType
from airunner.fleet.records import ActionKind, HousekeepingRun, PoolAudit, RecordedAction, RunOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airunner.fleet.aws.items import Item

_MAX_ACTION_BYTES: Final = 350_000
"""What the actions of a run may take: DynamoDB takes no item above 400 KiB."""
_MAX_TEXT: Final = 2_000


def run_item(run: HousekeepingRun) -> Item:
    """Return the attributes of a run, all but its keys, and of its actions those that an item can hold."""
    actions = list(_fitting([{**asdict(action), "kind": action.kind.value} for action in run.actions]))
    values = {
        "slot": run.slot,
        "task_type": run.task_type.value,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "outcome": run.outcome.value,
        "dry_run": run.dry_run,
        "text": run.text[:_MAX_TEXT],
        "listed": run.listed,
        "changed": run.changed,
        "actions_left_out": run.actions_left_out + len(run.actions) - len(actions),
        "actions": actions,
    }
    return {"run": {"S": json.dumps(values)}}


def run_from_item(item: Item) -> HousekeepingRun:
    """Return the run of an item. Fields that a newer version wrote are left out."""
    values = json.loads(item["run"]["S"])
    return HousekeepingRun(
        slot=values["slot"],
        task_type=TaskType(values["task_type"]),
        started_at=values["started_at"],
        ended_at=values["ended_at"],
        outcome=RunOutcome(values["outcome"]),
        dry_run=values["dry_run"],
        text=values["text"],
        listed=values["listed"],
        changed=values["changed"],
        actions_left_out=values["actions_left_out"],
        actions=tuple(map(_action, values["actions"])),
    )


def audit_item(audit: PoolAudit) -> Item:
    """Return the attributes of an audit of a pool, all but its keys."""
    return {"audit": {"S": json.dumps(asdict(audit))}}


def audit_from_item(item: Item) -> PoolAudit:
    """Return the audit of an item."""
    values = json.loads(item["audit"]["S"])
    return PoolAudit(**{name: values[name] for name in PoolAudit.__slots__})


def _fitting(actions: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the first actions, as many as fit."""
    left = _MAX_ACTION_BYTES
    for action in actions:
        # Escaped, so that each character is a byte; and what stands between two.
        left -= len(json.dumps(action)) + 2
        if left < 0:
            return
        yield action


def _action(values: dict[str, Any]) -> RecordedAction:
    return RecordedAction(
        kind=ActionKind(values["kind"]),
        target=values["target"],
        why=values["why"],
        seen=values["seen"],
        at=values["at"],
    )
