"""What there is in a fleet, and what is known of it. Instants are Unix milliseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from airunner.domain.fleet import (
    ActionKind,
    HousekeepingRun,
    Pool,
    PoolAudit,
    RecordedAction,
    RunOutcome,
)

# Some of it is told outside, too.
__all__ = [
    "INSTANCE_ID",
    "ActionKind",
    "HousekeepingRun",
    "Instance",
    "InstanceRecord",
    "InstanceState",
    "Pool",
    "PoolAudit",
    "RecordedAction",
    "RunOutcome",
    "RunnerParameter",
]

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
    """Whether its tags make it one of the fleet."""
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
