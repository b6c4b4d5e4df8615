"""What there is in a fleet, and what is known of it. Instants are Unix milliseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from airunner.fleet.messages.housekeeping import TaskType


INSTANCE_ID: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
"""The id of an instance. It becomes part of names, so there is nothing else in it."""


class InstanceState(Enum):
    """The states of an instance, in EC2's words."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A machine of the fleet, as EC2 describes it: perhaps a little late."""

    instance_id: str
    state: InstanceState
    launched_at: int
    instance_type: str = ""
    pool: str = ""
    """The pool that its tag names; empty if none does."""
    is_managed: bool = True
    """Whether it has the tag that makes it one of the fleet."""
    arn: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerParameter:
    """The parameter that holds a runner's configuration, all but its value."""

    name: str
    modified_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRecord:
    """What the fleet's records say of an instance; one that they do not know has all defaults."""

    instance_id: str
    queue: str = ""
    """What it was assigned to last."""
    assigned_at: int = 0
    """The instant of that; 0 if never."""
    draining_since: int = 0
    """Since when it gets no work, since it is to be terminated; 0 if it is not."""
    stale_since: int = 0
    """When its parameter was first seen without it; 0 if not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What an operator says of a pool of instances."""

    name: str
    instance_type: str = ""
    desired_running: int = 0
    desired_stopped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolAudit:
    """What an audit found in one pool."""

    pool: str
    audited_at: int
    running: int
    stopped: int
    idle: int
    """How many of the running ones have no job."""
    seconds: float
    """What the costs are for: the time since the audit before, at most two intervals; 0 of the first."""
    compute_cost_usd: float | None
    """Of the running instances; None where the price of one is not known, and of the first audit."""
    idle_cost_usd: float | None
    """Of the idle ones alone, in the same way."""

    @property
    def utilisation_percent(self) -> float | None:
        """The share of the running instances that have a job; None where none is running."""
        return (self.running - self.idle) / self.running * 100 if self.running else None


class ActionKind(Enum):
    """What a run did with one thing."""

    MARKED = "marked"
    UNMARKED = "unmarked"
    TERMINATED = "terminated"
    DELETED = "deleted"
    SPARED = "spared"
    PURGED = "purged"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAction:
    """One thing that a run did, or left: what, why, and what it had seen."""

    kind: ActionKind
    target: str
    why: str
    seen: str
    at: int


class RunOutcome(Enum):
    """How a run ended."""

    DONE = "done"
    SKIPPED = "skipped"
    """Another replica was running the same task."""
    REFUSED = "refused"
    """The breaker tripped: nothing was changed."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class HousekeepingRun:
    """One run of a task, and all that it did; in a dry run, what it would have done."""

    slot: str
    """Names the wish that it was made for; see HousekeepingMessage."""
    task_type: TaskType
    started_at: int
    ended_at: int
    outcome: RunOutcome
    dry_run: bool = False
    text: str = ""
    """Why it was skipped, refused or failed."""
    listed: int = 0
    """How many things it looked at."""
    changed: int = 0
    actions: tuple[RecordedAction, ...] = ()
    actions_left_out: int = 0
    """How many actions are not told, since a run keeps a limited number of them."""
