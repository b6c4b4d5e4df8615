"""The dead-letter queues: what is in them, sending it back and deleting it.

SQS has a task that moves messages, but it moves all of them and knows nothing of jobs. Here each message is
received, judged by the row of its job, sent, and only then deleted.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from airunner.aws import sqs
from airunner.aws.sqs import SqsEntry
from airunner.domain.answers import (
    DeadLetter,
    DeadLetterPage,
    DeadLetterReason,
    MessageCounts,
    Redriven,
)
from airunner.domain.errors import AirunnerError, FailedPrecondition
from airunner.domain.job import JobState
from airunner.domain.requests import Redrive
from airunner.stores.aws.items import number_if_any
from airunner.stores.aws.wakeups import job_id_of
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.aws.calls import Aws
    from airunner.aws.sqs import RedrivePolicy, SqsMessage
    from airunner.domain.clock import Clock
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.wakeups import Messages

_log = get_logger("airunner.aws")

_HIDDEN_SECONDS: Final = 30
_BUDGET_MS: Final = 10_000
_SHOWN_CHARACTERS: Final = 1024
_REDRIVES: Final = "redrives"
_ENDS: Final = frozenset(int(state) for state in JobState if state.terminal)


@dataclass(frozen=True, slots=True)
class _ReceivedLetter:
    letter: DeadLetter
    message: SqsMessage

    def redriven(self) -> _ReceivedLetter:
        """Return the same with one more redrive."""
        return replace(self, letter=replace(self.letter, redrives=self.letter.redrives + 1))


class DeadLetterQueues:
    """What the store says of dead letters; a call ends after so many, after seconds, or when none comes."""

    def __init__(
        self,
        aws: Aws,
        layout: Layout,
        *,
        rows: Rows,
        messages: Messages,
        real_clock: Clock,
        short_poll_seconds: int = 1,
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._messages = messages
        self._real_clock = real_clock
        # Only a long poll asks all the servers of SQS.
        self._short_poll_seconds = short_poll_seconds
        self._urls: dict[str, str] = {}

    async def look(self, queue: str, max_messages: int) -> DeadLetterPage:
        """Look at messages and show them again."""
        url = await self._url(queue)
        received = await self._receive(url, max_messages)
        await self._show_again(url, received)
        counts = await sqs.count_messages(self._aws, url)
        total = max(len(received), counts["visible"] + counts["in_flight"])
        return DeadLetterPage(letters=[each.letter for each in received], approximate_total=total)

    async def redrive(self, redrive: Redrive) -> Redriven:
        """Send what is wanted back to its queue, in tens, and delete what was sent."""
        url, give_up_at = await self._url(redrive.queue), self._real_clock.now() + _BUDGET_MS
        chosen: dict[str, _ReceivedLetter] = {}
        left: dict[str, DeadLetter] = {}
        seen: list[_ReceivedLetter] = []
        while len(chosen) < redrive.max_messages and self._real_clock.now() < give_up_at:
            received = await self._receive_some(url, redrive.max_messages - len(chosen))
            if not received:
                break
            seen += received
            wanted = [each for each in received if redrive.wants(each.letter)]
            if not redrive.dry_run:
                wanted = await self._send_back(redrive.queue, url, wanted)
            chosen |= {each.letter.message_id: each for each in wanted}
            left |= {each.letter.message_id: each.letter for each in received if each not in wanted}
        if redrive.dry_run:
            await self._show_again(url, seen)
        kept = [letter for message_id, letter in left.items() if message_id not in chosen]
        return Redriven(redriven=[each.letter for each in chosen.values()], left=kept)

    async def redrive_open(self, queue: str, max_messages: int) -> Redriven:
        """Look at so many messages, send those of open jobs back, and show the others again."""
        url, wish = await self._url(queue), Redrive(queue=queue, max_messages=max_messages)
        received = await self._receive(url, max_messages)
        sent = await self._send_back(queue, url, [each for each in received if wish.wants(each.letter)])
        gone = {each.letter.message_id for each in sent}
        left = [each for each in received if each.letter.message_id not in gone]
        await self._show_again(url, left)
        return Redriven(redriven=[each.letter for each in sent], left=[each.letter for each in left])

    async def purge(self, queue: str, max_messages: int, *, dry_run: bool) -> Sequence[DeadLetter]:
        """Delete messages, those that were received only."""
        url = await self._url(queue)
        received = await self._receive(url, max_messages)
        if dry_run:
            await self._show_again(url, received)
            return [each.letter for each in received]
        gone, errors = await self._delete(url, received)
        if errors and not gone:
            raise errors[0]
        return [each.letter for each in gone]

    async def read_policy(self, queue: str) -> RedrivePolicy | None:
        """Return where a queue puts messages aside and after how many receives, None if nowhere."""
        return await sqs.read_redrive_policy(self._aws, self._messages.url(queue))

    async def count_dead(self, queue: str) -> int:
        """Ask SQS how many messages can be received from a dead-letter queue; 0 where there is none."""
        try:
            return (await sqs.count_messages(self._aws, await self._url(queue)))["visible"]
        except FailedPrecondition:
            return 0

    async def count(self) -> Sequence[MessageCounts]:
        """Ask SQS for the counts of each queue and its dead-letter queue."""
        return await asyncio.gather(*map(self._count, self._layout.queues))

    async def _count(self, queue: str) -> MessageCounts:
        own = await sqs.count_messages(self._aws, self._messages.url(queue))
        return MessageCounts(queue=queue, dead_letters=await self.count_dead(queue), **own)

    async def _url(self, queue: str) -> str:
        """Return the address of the queue that the redrive policy names, or else of that with our name."""
        self._messages.check_queue(queue)
        if queue not in self._urls:
            policy = await self.read_policy(queue)
            name = policy.dead_letter_name if policy else self._layout.dead_letter_name(queue)
            if not (url := await sqs.find_queue(self._aws, name)):
                raise FailedPrecondition(f"queue {queue} has no dead-letter queue {name}")
            self._urls[queue] = url
        return self._urls[queue]

    async def _receive(self, url: str, max_messages: int) -> list[_ReceivedLetter]:
        """Receive until there is nothing more; one that comes twice counts once."""
        found: dict[str, _ReceivedLetter] = {}
        give_up_at = self._real_clock.now() + _BUDGET_MS
        while len(found) < max_messages and self._real_clock.now() < give_up_at:
            received = await self._receive_some(url, max_messages - len(found))
            if not received:
                break
            found |= {each.letter.message_id: each for each in received}
        return list(found.values())

    async def _receive_some(self, url: str, count: int) -> list[_ReceivedLetter]:
        messages = await sqs.receive(
            self._aws,
            url,
            count,
            wait_seconds=self._short_poll_seconds,
            visibility_seconds=_HIDDEN_SECONDS,
            system_attributes=["SentTimestamp"],
            attributes=[_REDRIVES],
        )
        job_ids = {job_id_of(message.body) for message in messages} - {""}
        rows = await self._rows.read_many(
            sorted(job_ids),
            ProjectionExpression="job_id, #state",
            ExpressionAttributeNames={"#state": "state"},
        )
        return [_ReceivedLetter(_letter(message, rows), message) for message in messages]

    async def _send_back(
        self, queue: str, url: str, received: Sequence[_ReceivedLetter]
    ) -> list[_ReceivedLetter]:
        """Send messages to their queue, one more redrive noted on each; return those that were sent.

        What was sent and could not be deleted comes here once more at most, and a second message is harmless.
        """
        again = [each.redriven() for each in received]
        entries = [
            SqsEntry(body=each.message.body, attributes={_REDRIVES: each.letter.redrives}) for each in again
        ]
        outcomes = await sqs.send(self._aws, self._messages.url(queue), entries)
        for outcome in outcomes:
            if isinstance(outcome, AirunnerError):
                _log.warning("aws.redrive_failed", queue=queue, error=outcome.text)
        sent = [each for each, outcome in zip(again, outcomes, strict=True) if isinstance(outcome, str)]
        await self._delete(url, sent)
        return sent

    async def _delete(
        self, url: str, received: Sequence[_ReceivedLetter]
    ) -> tuple[list[_ReceivedLetter], list[AirunnerError]]:
        """Delete messages; return those that are gone, and why others are not."""
        outcomes = await sqs.delete(self._aws, url, [each.message.receipt for each in received])
        gone = [each for each, error in zip(received, outcomes, strict=True) if error is None]
        return gone, [error for error in outcomes if error]

    async def _show_again(self, url: str, received: Sequence[_ReceivedLetter]) -> None:
        """Make messages visible; one that cannot be is so in half a minute."""
        await sqs.change_visibility(self._aws, url, [each.message.receipt for each in received], 0)


def _letter(message: SqsMessage, rows: dict[str, Item]) -> DeadLetter:
    job_id = job_id_of(message.body)
    return DeadLetter(
        message_id=message.message_id,
        reason=_reason(job_id, rows.get(job_id)),
        job_id=job_id,
        sent_at=message.sent_at,
        redrives=_redrives(message),
        body=message.body[:_SHOWN_CHARACTERS],
        body_cut=len(message.body) > _SHOWN_CHARACTERS,
    )


def _reason(job_id: str, row: Item | None) -> DeadLetterReason:
    if not job_id:
        return DeadLetterReason.UNREADABLE
    if row is None:
        return DeadLetterReason.JOB_NOT_FOUND
    # A state that nobody here knows is none of the ends: a newer server may go on with the job.
    ended = number_if_any(row, "state") in _ENDS
    return DeadLetterReason.JOB_ENDED if ended else DeadLetterReason.JOB_OPEN


def _redrives(message: SqsMessage) -> int:
    value = message.attributes.get(_REDRIVES, "")
    return int(value) if value.isascii() and value.isdigit() else 0
