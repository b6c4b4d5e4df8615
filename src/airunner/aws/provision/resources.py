"""What provisioning returns, and the one hand that writes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from airunner.aws.errors import Refused
from airunner.domain.errors import DeadlineExceeded, ResourceExhausted
from airunner.domain.retry import RetryPolicy, retry
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from airunner.aws.calls import Aws
    from airunner.aws.provision.definitions import Arguments
    from airunner.domain.clock import Clock

_log = get_logger("airunner.aws")

NOT_YET: Final = {
    "ContinuousBackupsUnavailableException": "its backups to begin",
    "DeadLetterTargetDoesNotExist": "its dead-letter queue to be known",
    "NonExistentQueue": "it to be known",
    "OperationAborted": "another change of it to end",
    "QueueDeletedRecently": "the minute after the deletion of a queue of this name",
    "QueueDoesNotExist": "it to be known",
    "ResourceInUseException": "another change of it to end",
}
"""Refusals that pass, and what AWS waits for meanwhile."""

_POLL_SECONDS: Final = 1.0
_PATIENCE: Final = RetryPolicy(first_seconds=_POLL_SECONDS, factor=1.5, max_seconds=10.0, jitter=0.0)


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
    """Reads and writes for a provisioning; a dry run only reads.

    `deadline` is an instant of the monotonic clock.
    """

    def __init__(self, aws: Aws, clock: Clock, *, dry_run: bool, deadline: int) -> None:
        self.aws = aws
        self.dry_run = dry_run
        self._clock = clock
        self._deadline = deadline

    async def write(self, call: Callable[[], Awaitable[Arguments]], what: str) -> Arguments:
        """Call as `repeat` does, and return the answer; in a dry run, neither."""
        return {} if self.dry_run else await self.repeat(call, what)

    async def repeat(self, call: Callable[[], Awaitable[Arguments]], what: str) -> Arguments:
        """Call until AWS answers with something else than "not yet"; say what is waited for.

        The call must expect the codes of NOT_YET. DeadlineExceeded when the time of the whole provisioning
        is over.
        """
        try:
            return await retry(
                _PATIENCE,
                self._clock,
                call,
                retry_if=_may_come,
                on_failure=lambda error, failures: _say(what, error, failures),
                give_up_at=self._deadline,
            )
        except Refused as error:
            if error.code not in NOT_YET:
                raise
            raise DeadlineExceeded(
                f"{what} still waits for {NOT_YET[error.code]}; run the command again"
            ) from error

    async def wait_until(self, is_ready: Callable[[], Awaitable[bool]], what: str) -> None:
        """Ask until the answer is yes; DeadlineExceeded when the time of the whole provisioning is over."""
        while not self.dry_run and not await is_ready():
            if self._clock.monotonic() >= self._deadline:
                raise DeadlineExceeded(
                    f"{what} is still not active; AWS goes on with it: run the command again"
                )
            await self._clock.sleep(_POLL_SECONDS)


def _may_come(error: Exception) -> bool:
    """Many changes at once are refused like too many calls."""
    return isinstance(error, ResourceExhausted) or (isinstance(error, Refused) and error.code in NOT_YET)


def _say(what: str, error: Exception, failures: int) -> None:
    if failures == 1:
        reason = NOT_YET[error.code] if isinstance(error, Refused) else "AWS, which is busy"
        _log.info("provision.waits", resource=what, waits_for=reason)


def outcome_of(details: list[str]) -> Change:
    """Return what so many updates of something that was there make."""
    return Change.UPDATED if details else Change.UNCHANGED
