"""What a fleet is asked and tells: tasks, their runs, and pools. Instants are Unix milliseconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class TaskType(Enum):
    """The tasks that there are; each is one module of `airunner.fleet.housekeeping`."""

    ORPHANED_INSTANCES = "orphaned_instances"
    STALE_SSM = "stale_ssm"
    OLD_JOBS = "old_jobs"
    POOL_AUDIT = "pool_audit"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolReport:
    """The pools of a fleet, and what the last audits found in them."""

    pools: Sequence[Pool] = ()
    """Those that operators have described, by name."""
    audits: Sequence[Sequence[PoolAudit]] = ()
    """The last ones, newest first, each with all its pools."""
