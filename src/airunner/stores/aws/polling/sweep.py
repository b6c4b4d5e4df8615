"""Dequeues that do not wait: what is in a queue now, in as many receives as it takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from airunner.aws.sqs import MAX_ENTRIES
from airunner.domain.errors import AirunnerError
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.job import Job
    from airunner.stores.aws.claim import Candidate, Claimer
    from airunner.stores.aws.polling.at_hand import AtHand
    from airunner.stores.aws.polling.gate import QueueGate
    from airunner.stores.aws.wakeups import Messages, ReceivedWake
    from airunner.stores.records import Demand

ShareOut: TypeAlias = "Callable[[str, Sequence[Candidate]], Awaitable[None]]"
"""Gives jobs of a queue to others."""

_log = get_logger("airunner.aws")

# How many receives that bring what it cannot do one call goes through before it answers.
_MOST_REFUSALS: Final = 10


async def look(
    claimer: Claimer, gate: QueueGate, queue: str, received: Sequence[ReceivedWake]
) -> list[Candidate]:
    """Return what could be claimed; the gate of the queue knows from now on whether it is paused."""
    is_paused, found = await claimer.look(queue, received)
    gate.note(queue, is_paused=is_paused)
    return found


class Sweeper:
    """Claims what is there for one who does not wait."""

    def __init__(
        self,
        *,
        messages: Messages,
        claimer: Claimer,
        gate: QueueGate,
        at_hand: AtHand,
        short_poll_seconds: int,
    ) -> None:
        self._messages = messages
        self._claimer = claimer
        self._gate = gate
        self._at_hand = at_hand
        # How long one who does not want to wait waits: only a long poll asks all the servers of SQS.
        self._short_poll_seconds = short_poll_seconds

    async def take(self, queue: str, demand: Demand, share_out: ShareOut) -> list[Job]:
        """Claim jobs of a queue, nothing while it is paused; what the demand cannot do goes to others."""
        taken: list[Job] = []
        room, refusals = demand.max_bytes, 0
        while len(taken) < demand.max_jobs and room > 0 and refusals < _MOST_REFUSALS:
            try:
                received = await self._receive(queue, demand.max_jobs - len(taken), is_first=not taken)
                if not received:
                    break
                found = await look(self._claimer, self._gate, queue, received)
                mine = [candidate for candidate in found if demand.can_do(candidate.handler_key)]
                claimed = await self._claimer.claim(queue, mine, demand, room)
                taken += claimed.jobs
                room = claimed.room
                others = [candidate for candidate in found if candidate not in mine]
                await share_out(queue, others)
            except AirunnerError as error:
                self._gate.distrust(queue)
                if not taken:
                    raise
                # What was claimed before must not be lost.
                _log.warning("aws.receive_failed", queue=queue, error=error.text)
                break
            refusals += bool(others)
        return taken

    async def _receive(self, queue: str, wanted: int, *, is_first: bool) -> list[ReceivedWake]:
        """Return what is at hand, or else what a receive brings, if the queue may be received from."""
        if not await self._gate.is_open(queue):
            return []
        if at_hand := self._at_hand.take(queue, wanted):
            return at_hand
        wait_seconds = self._short_poll_seconds if is_first else 0
        received = await self._messages.receive(queue, min(wanted, MAX_ENTRIES), wait_seconds)
        # A poll of ours may have been quicker.
        return received or self._at_hand.take(queue, wanted)
