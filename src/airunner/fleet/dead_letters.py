"""The dead letters of the fleet's two queues, for operators: grouped by their codes.

What is sent back is judged anew: nothing of the first judgement stays with a message but how often it was
sent back.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airunner.aws.dead_letters import DeadLetterBox, letter_of
from airunner.config import FleetPart
from airunner.domain.answers import DeadLetterReason
from airunner.domain.errors import FailedPrecondition, PermanentFailure
from airunner.fleet.messages.housekeeping import parse_housekeeping
from airunner.fleet.messages.termination import parse_termination
from airunner.queues.message_rules import ABANDONED, REASON_ATTRIBUTE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airunner.aws.sqs import SqsMessage
    from airunner.domain.answers import DeadLetter, DeadLetterPage, Redriven
    from airunner.domain.clock import Clock
    from airunner.domain.requests import Redrive
    from airunner.fleet.aws.connection import FleetConnection

_PARSERS: Final[dict[FleetPart, Callable[[str], object]]] = {
    FleetPart.TERMINATION: parse_termination,
    FleetPart.HOUSEKEEPING: parse_housekeeping,
}
_MAX_CODE: Final = 64


class FleetDeadLetters:
    """Implements DeadLetterCalls for the queue of one processor, on a connection that others open."""

    def __init__(
        self, fleet: FleetConnection, part: FleetPart, clock: Clock, *, short_poll_seconds: int = 1
    ) -> None:
        self._fleet = fleet
        self._part = part
        self._clock = clock
        self._short_poll_seconds = short_poll_seconds

    async def look(self, queue: str, max_messages: int, *, code: str = "") -> DeadLetterPage:  # noqa: ARG002  it has one
        """Look at messages and show them again."""
        return await (await self._box()).look(max_messages, code=code)

    async def redrive(self, redrive: Redrive) -> Redriven:
        """Send letters back, as they came, and delete what was sent; unreadable ones stay unless all go."""
        return await (await self._box()).redrive(redrive)

    async def purge(
        self,
        queue: str,  # noqa: ARG002  it has one
        max_messages: int,
        *,
        dry_run: bool,
        code: str = "",
    ) -> Sequence[DeadLetter]:
        """Delete letters; jobs, parameters and machines stay as they are."""
        return await (await self._box()).purge(max_messages, dry_run=dry_run, code=code)

    async def _box(self) -> DeadLetterBox:
        queue = await self._fleet.queue(self._part)
        redrive = await queue.redrive_policy()
        if redrive is None:
            raise FailedPrecondition(f"queue {queue.name} has no dead-letter queue")
        return DeadLetterBox(
            self._fleet.aws,
            self._part.value,
            url=queue.url,
            dead_url=redrive.dead_letter_url,
            judge=self._judge,
            clock=self._clock,
            short_poll_seconds=self._short_poll_seconds,
        )

    async def _judge(self, messages: Sequence[SqsMessage]) -> Sequence[DeadLetter]:
        return [judge_letter(message, _PARSERS[self._part]) for message in messages]


def judge_letter(message: SqsMessage, parse: Callable[[str], object]) -> DeadLetter:
    """Return a letter by what its message says, which anybody may have written."""
    try:
        found, refusal = parse(message.body), ""
    except PermanentFailure as failure:
        found, refusal = None, failure.code
    code = message.attributes.get(REASON_ATTRIBUTE, "") or refusal or ABANDONED
    return replace(
        letter_of(message),
        job_id=getattr(found, "job_id", ""),
        code=re.sub(r"[^A-Za-z0-9_.-]", "_", code)[:_MAX_CODE],
        reason=DeadLetterReason.UNREADABLE if refusal else DeadLetterReason.MESSAGE,
    )
