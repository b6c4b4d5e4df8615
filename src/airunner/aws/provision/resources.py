"""What provisioning returns, and the one hand that writes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from airunner.domain.errors import DeadlineExceeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airunner.aws.calls import Aws
    from airunner.domain.clock import Clock

_POLL_SECONDS: Final = 1.0


class ResourceKind(StrEnum):
    """The kinds of resource."""

    QUEUE = "queue"
    DEAD_LETTER_QUEUE = "dead-letter queue"
    TABLE = "table"
    BUCKET = "bucket"


class Change(StrEnum):
    """What was done, or in a dry run would be."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One resource as it is now. In a dry run, one that is still to be created has neither ARN nor URL."""

    kind: ResourceKind
    name: str
    change: Change
    arn: str = ""
    url: str = ""
    queue: str = ""
    """The logical queue, of queues and dead-letter queues."""
    details: tuple[str, ...] = ()
    """What was updated, by the names AWS has for it."""


class Writer:
    """Reads and writes for a provisioning; a dry run only reads."""

    def __init__(self, aws: Aws, clock: Clock, *, dry_run: bool, deadline: int) -> None:
        self.aws = aws
        self.dry_run = dry_run
        self._clock = clock
        self._deadline = deadline

    async def write(self, call: Callable[[], Awaitable[Any]]) -> None:
        """Call, unless this is a dry run."""
        if not self.dry_run:
            await call()

    async def wait_until(self, is_ready: Callable[[], Awaitable[bool]], what: str) -> None:
        """Ask until the answer is yes; DeadlineExceeded when the time of the whole provisioning is over."""
        while not self.dry_run and not await is_ready():
            if self._clock.now() >= self._deadline:
                raise DeadlineExceeded(f"{what} is still not active")
            await self._clock.sleep(_POLL_SECONDS)


def outcome_of(details: list[str]) -> Change:
    """Return what so many updates of something that was there make."""
    return Change.UPDATED if details else Change.UNCHANGED
