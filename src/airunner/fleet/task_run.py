"""What a housekeeping task is given for one run: its limits, its lease, and where it says what it does."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from airunner.domain.errors import FailedPrecondition
from airunner.fleet.records import ActionKind, RecordedAction
from airunner.fleet.run_record import MAX_ACTIONS
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airunner.domain.clock import Clock
    from airunner.fleet.lease import TaskLease

_log = get_logger("airunner.fleet")

_MAX_TEXT: Final = 300
_SPARED_ACTIONS: Final = 100
_BREAKER_SHARE: Final = 0.25
_BREAKER_COUNT: Final = 3


class BreakerTripped(FailedPrecondition):
    """A run was about to change so much that something else must be wrong; it has changed nothing."""


class HousekeepingTask(Protocol):
    """One task: a rule over ports. Bounded, repeatable at any point, and in a dry run without any effect.

    What it cannot read it leaves alone: an error of a read that all depends on is raised.
    """

    async def run(self, run: TaskRun) -> None:
        """Do what the run allows, and tell it."""


class TaskRun:
    """One run of a task, as it goes on."""

    def __init__(
        self,
        clock: Clock,
        lease: TaskLease,
        *,
        task: str = "",
        limit: int = 0,
        dry_run: bool = False,
        force: bool = False,
        on_step: Callable[[], None] | None = None,
    ) -> None:
        """`task` names it in the log; `on_step` is called between any two steps."""
        self._clock = clock
        self._lease = lease
        self._task = task
        self._limit = limit
        self._force = force
        self._on_step = on_step
        self.dry_run = dry_run
        self.now = clock.now()
        self.listed = 0
        self.changed = 0
        self.actions: list[RecordedAction] = []
        self.actions_left_out = 0
        self._spared = 0

    async def keep(self) -> None:
        """Make sure that the task is still ours; call it between any two steps."""
        await self._lease.keep()
        if self._on_step:
            self._on_step()

    def limit(self, default: int) -> int:
        """Return how many things the run may change, where the task itself says so many."""
        return min(self._limit or default, default)

    def check_breaker(self, changes: int) -> None:
        """Raise before the first change if these are too many of what was listed."""
        if changes > _BREAKER_COUNT and changes > _BREAKER_SHARE * self.listed and not self._force:
            raise BreakerTripped(
                f"{changes} of {self.listed} would be marked or removed: more than a quarter, so nothing was "
                "done; look for what is wrong, then run it by hand with --force"
            )

    def plan(self, kind: ActionKind, target: str, why: str, seen: str) -> RecordedAction:
        """Return an action that is still to be done."""
        return RecordedAction(
            kind=kind,
            target=target[:_MAX_TEXT],
            why=why[:_MAX_TEXT],
            seen=seen[:_MAX_TEXT],
            at=self._clock.now(),
        )

    @contextmanager
    def acting(self, *actions: RecordedAction) -> Iterator[None]:
        """Log actions, each with its reason, before the body does them: a kill then takes no reason along.

        Where the body raises, they are recorded as uncertain: a call may fail after it has had its effect.
        """
        self.announce(*actions)
        try:
            yield
        except Exception:
            for action in actions:
                self.record_uncertain(action)
            raise

    def record(self, action: RecordedAction) -> None:
        """Tell of one thing that was done, in a dry run that would have been."""
        self.changed += action.kind is not ActionKind.SPARED
        self._spared += action.kind is ActionKind.SPARED
        is_too_much = action.kind is ActionKind.SPARED and self._spared > _SPARED_ACTIONS
        if is_too_much or len(self.actions) == MAX_ACTIONS:
            self.actions_left_out += 1
        else:
            self.actions.append(action)

    def record_uncertain(self, action: RecordedAction) -> None:
        """Tell of one thing that may have been done: no answer says so."""
        self.record(replace(action, why=f"{action.why}; nobody knows whether it was done"))

    def spare(self, target: str, why: str, seen: str) -> None:
        """Tell of one thing that was left alone."""
        action = self.plan(ActionKind.SPARED, target, why, seen)
        self.announce(action)
        self.record(action)

    def announce(self, *actions: RecordedAction) -> None:
        """Log what is about to be done, or left, which has a lower level. No log line ends a run."""
        for action in actions:
            write = _log.debug if action.kind is ActionKind.SPARED else _log.info
            with suppress(Exception):
                write(
                    "housekeeping.action",
                    task=self._task,
                    action=action.kind.value,
                    resource=action.target,
                    reason=action.why,
                    seen=action.seen,
                    dry_run=self.dry_run,
                )
