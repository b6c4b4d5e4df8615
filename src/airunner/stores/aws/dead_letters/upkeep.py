"""Dead letters of open jobs go back by themselves; and queues that put messages aside too soon are named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.domain.errors import error_text
from airunner.stores.aws.layout import MAX_RECEIVE_COUNT
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection

    from airunner.domain.clock import Clock
    from airunner.stores.aws.dead_letters.queues import DeadLetterQueues

_log = get_logger("airunner.aws")

LOOK_EVERY_MS: Final = 60_000
"""How often a server asks for the number of dead letters."""
LOOK_AGAIN_MS: Final = 600_000
"""How often those are looked at again that could not be sent back."""
MOST_LOOKED_AT: Final = 100
"""How many letters of a queue are looked at in one pass."""


class DeadLetterUpkeep:
    """Looks into the dead-letter queues now and then.

    No job is lost without it: the reconciler sends another message in time, but that may be hours. A letter
    is sent back as a new message, whose receives count anew, and three times at the most.
    """

    def __init__(self, dead_letters: DeadLetterQueues, queues: Collection[str], real_clock: Clock) -> None:
        self._dead_letters = dead_letters
        self._queues = queues
        self._real_clock = real_clock
        self._next_at = real_clock.monotonic() + LOOK_EVERY_MS
        self._left: dict[str, _Left] = {}

    async def run_if_due(self) -> None:
        """Send back what is to be sent back. A queue that fails is counted and named, and hurts no other."""
        now = self._real_clock.monotonic()
        if now < self._next_at:
            return
        # Set before the look: one that fails is not repeated any sooner.
        self._next_at = now + LOOK_EVERY_MS
        for queue in self._queues:
            try:
                await self._tend(queue, now)
            except Exception as error:  # noqa: BLE001  whatever it is, the pass that it belongs to goes on
                telemetry.aws_follow_ups_failed.add(1)
                _log.warning("aws.redrive_failed", queue=queue, error=error_text(error))

    async def warn(self) -> None:
        """Name the queues that put messages aside too soon, or nowhere."""
        for queue in self._queues:
            policy = await self._dead_letters.read_policy(queue)
            if policy is None or policy.max_receive_count < MAX_RECEIVE_COUNT:
                _log.warning(
                    "aws.redrive_policy",
                    queue=queue,
                    max_receive_count=policy.max_receive_count if policy else None,
                    needed=MAX_RECEIVE_COUNT,
                    mend="airunner aws provision",
                )

    async def _tend(self, queue: str, now: int) -> None:
        number = await self._dead_letters.count_dead(queue)
        left = self._left.get(queue)
        if left and number <= left.number and now < left.look_again_at:
            return
        self._left.pop(queue, None)
        if not number:
            return
        done = await self._dead_letters.redrive_open(queue, MOST_LOOKED_AT)
        if done.redriven:
            _log.warning("aws.dead_letters_redriven", queue=queue, messages=len(done.redriven))
        else:
            # They stay until somebody sees to them. What comes beside them is looked at at once.
            self._left[queue] = _Left(number, now + LOOK_AGAIN_MS)


@dataclass(frozen=True, slots=True)
class _Left:
    number: int
    look_again_at: int
