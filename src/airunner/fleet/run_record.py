"""What all tries of a slot did, as one record: a try that fails is followed by another of the same slot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airunner.fleet.records import ActionKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.fleet.records import HousekeepingRun, RecordedAction

MAX_ACTIONS: Final = 1_000
"""How many actions a record tells of; more than one run may change."""


def with_earlier(run: HousekeepingRun, earlier: HousekeepingRun | None) -> HousekeepingRun:
    """Return a try with all that earlier ones of its slot did before it.

    What was only told, in a dry run, is not put together with what was done.
    """
    if earlier is None or not earlier.actions or earlier.dry_run != run.dry_run:
        return run
    actions = (*earlier.actions, *run.actions)
    kept = _bounded(actions)
    left_out = earlier.actions_left_out + run.actions_left_out + len(actions) - len(kept)
    return replace(
        run,
        started_at=earlier.started_at,
        changed=earlier.changed + run.changed,
        actions=kept,
        actions_left_out=left_out,
    )


def _bounded(actions: Sequence[RecordedAction]) -> tuple[RecordedAction, ...]:
    """Return the first ones, in their order; what was spared gives way to what was changed."""
    changes = sum(action.kind is not ActionKind.SPARED for action in actions)
    room = {True: min(changes, MAX_ACTIONS), False: max(0, MAX_ACTIONS - changes)}
    kept = []
    for action in actions:
        is_change = action.kind is not ActionKind.SPARED
        if room[is_change]:
            room[is_change] -= 1
            kept.append(action)
    return tuple(kept)
