"""The dead-letter queues: what is in them, sending it back and deleting it.

SQS has a task that moves messages, but it moves all of them and knows nothing of jobs. Here each message is
received, judged by the row of its job, sent, and only then deleted.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from airunner.aws.errors import Refused
from airunner.domain.answers import (
    DeadLetter,
    DeadLetterPage,
    DeadLetterReason,
    MessageCounts,
    Redriven,
)
from airunner.domain.errors import AirunnerError, FailedPrecondition
from airunner.domain.job import JobState
from airunner.stores.aws.wakeups import MOST_AT_ONCE, job_id_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.aws.calls import Aws
    from airunner.domain.clock import Clock
    from airunner.domain.requests import Redrive
    from airunner.stores.aws.items import Item
    from airunner.stores.aws.layout import Layout
    from airunner.stores.aws.rows import Rows
    from airunner.stores.aws.wakeups import Messages

_log = structlog.get_logger("airunner.aws")

_HIDDEN_SECONDS: Final = 30
_BUDGET_MS: Final = 10_000
_SHOWN_CHARACTERS: Final = 1024
_REDRIVES: Final = "redrives"
_COUNTS: Final = {
    "visible": "ApproximateNumberOfMessages",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
}


@dataclass(frozen=True, slots=True)
class _Received:
    letter: DeadLetter
    body: str
    receipt: str


class DeadLetterQueues:
    """What the store says of dead letters; a call ends after so many, after seconds, or when none comes."""

    def __init__(
        self,
        aws: Aws,
        layout: Layout,
        *,
        rows: Rows,
        messages: Messages,
        patience: Clock,
        short_poll_seconds: int = 1,
    ) -> None:
        self._aws = aws
        self._layout = layout
        self._rows = rows
        self._messages = messages
        self._patience = patience
        # Only a long poll asks all the servers of SQS.
        self._short_poll_seconds = short_poll_seconds
        self._urls: dict[str, str] = {}

    async def look(self, queue: str, max_messages: int) -> DeadLetterPage:
        """Look at messages and show them again."""
        url = await self._url(queue)
        received = await self._receive(url, max_messages)
        await self._show_again(url, received)
        counts = await self._counts(url)
        total = max(len(received), counts["visible"] + counts["in_flight"])
        return DeadLetterPage(letters=[each.letter for each in received], approximate_total=total)

    async def redrive(self, redrive: Redrive) -> Redriven:
        """Send what is wanted back to its queue, in tens, and delete what was sent."""
        url, give_up_at = await self._url(redrive.queue), self._patience.now() + _BUDGET_MS
        chosen: dict[str, _Received] = {}
        left: dict[str, DeadLetter] = {}
        seen: list[_Received] = []
        while len(chosen) < redrive.max_messages and self._patience.now() < give_up_at:
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

    async def purge(self, queue: str, max_messages: int, *, dry_run: bool) -> Sequence[DeadLetter]:
        """Delete messages, those that were received only."""
        url = await self._url(queue)
        received = await self._receive(url, max_messages)
        if dry_run:
            await self._show_again(url, received)
            return [each.letter for each in received]
        gone: list[_Received] = []
        for chunk in _tens(received):
            gone += await self._delete(url, chunk)
        return [each.letter for each in gone]

    async def count(self) -> Sequence[MessageCounts]:
        """Ask SQS for the counts of each queue and its dead-letter queue."""
        return await asyncio.gather(*map(self._count, self._layout.queues))

    async def _count(self, queue: str) -> MessageCounts:
        own = await self._counts(self._messages.url(queue))
        try:
            dead = (await self._counts(await self._url(queue)))["visible"]
        except FailedPrecondition:
            dead = 0
        return MessageCounts(queue=queue, dead_letters=dead, **own)

    async def _counts(self, url: str) -> dict[str, int]:
        names = list(_COUNTS.values())
        answer = await self._aws.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=names)
        return {name: int(answer["Attributes"].get(attribute, 0)) for name, attribute in _COUNTS.items()}

    async def _url(self, queue: str) -> str:
        self._messages.check_queue(queue)
        if queue not in self._urls:
            name = self._layout.dead_letter_name(queue)
            try:
                self._urls[queue] = (await self._aws.sqs("GetQueueUrl", QueueName=name))["QueueUrl"]
            except Refused as error:
                if "NonExistentQueue" not in error.code and "QueueDoesNotExist" not in error.code:
                    raise
                raise FailedPrecondition(f"queue {queue} has no dead-letter queue {name}") from None
        return self._urls[queue]

    async def _receive(self, url: str, max_messages: int) -> list[_Received]:
        """Receive until there is nothing more; one that comes twice counts once."""
        found: dict[str, _Received] = {}
        give_up_at = self._patience.now() + _BUDGET_MS
        while len(found) < max_messages and self._patience.now() < give_up_at:
            received = await self._receive_some(url, max_messages - len(found))
            if not received:
                break
            found |= {each.letter.message_id: each for each in received}
        return list(found.values())

    async def _receive_some(self, url: str, count: int) -> list[_Received]:
        answer = await self._aws.sqs(
            "ReceiveMessage",
            wait_seconds=self._short_poll_seconds,
            QueueUrl=url,
            MaxNumberOfMessages=min(count, MOST_AT_ONCE),
            WaitTimeSeconds=self._short_poll_seconds,
            VisibilityTimeout=_HIDDEN_SECONDS,
            AttributeNames=["SentTimestamp"],
            MessageAttributeNames=[_REDRIVES],
        )
        messages = answer.get("Messages", ())
        job_ids = {job_id_of(message["Body"]) for message in messages} - {""}
        rows = await self._rows.read_many(
            sorted(job_ids),
            ProjectionExpression="job_id, #state",
            ExpressionAttributeNames={"#state": "state"},
        )
        return [
            _Received(_letter(message, rows), message["Body"], message["ReceiptHandle"])
            for message in messages
        ]

    async def _send_back(self, queue: str, url: str, received: Sequence[_Received]) -> list[_Received]:
        """Send messages to their queue, one more redrive noted on each; return those that were sent.

        What was sent and could not be deleted comes here once more at most, and a second message is harmless.
        """
        # Singly: ten of other people's messages may be too long for one call.
        answers = await asyncio.gather(*(self._send(queue, each) for each in received))
        sent = [each for each in answers if each]
        if sent:
            await self._delete(url, sent)
        return sent

    async def _send(self, queue: str, received: _Received) -> _Received | None:
        redrives = received.letter.redrives + 1
        try:
            await self._aws.sqs(
                "SendMessage",
                QueueUrl=self._messages.url(queue),
                MessageBody=received.body,
                MessageAttributes={_REDRIVES: {"DataType": "Number", "StringValue": str(redrives)}},
            )
        except AirunnerError as error:
            _log.warning("aws.redrive_failed", queue=queue, error=error.text)
            return None
        return replace(received, letter=replace(received.letter, redrives=redrives))

    async def _delete(self, url: str, received: Sequence[_Received]) -> list[_Received]:
        entries = [{"Id": str(index), "ReceiptHandle": each.receipt} for index, each in enumerate(received)]
        answer = await self._aws.sqs("DeleteMessageBatch", QueueUrl=url, Entries=entries)
        failed = {entry["Id"] for entry in answer.get("Failed", ())}
        return [each for index, each in enumerate(received) if str(index) not in failed]

    async def _show_again(self, url: str, received: Sequence[_Received]) -> None:
        """Make messages visible; one that cannot be is so in half a minute."""
        for chunk in _tens(received):
            entries = [
                {"Id": str(index), "ReceiptHandle": each.receipt, "VisibilityTimeout": 0}
                for index, each in enumerate(chunk)
            ]
            with suppress(AirunnerError):
                await self._aws.sqs("ChangeMessageVisibilityBatch", QueueUrl=url, Entries=entries)


def _letter(message: dict[str, Any], rows: dict[str, Item]) -> DeadLetter:
    body = message["Body"]
    job_id = job_id_of(body)
    return DeadLetter(
        message_id=message["MessageId"],
        reason=_reason(job_id, rows.get(job_id)),
        job_id=job_id,
        sent_at=int(message.get("Attributes", {}).get("SentTimestamp", 0)),
        redrives=_redrives(message.get("MessageAttributes", {})),
        body=body[:_SHOWN_CHARACTERS],
        body_cut=len(body) > _SHOWN_CHARACTERS,
    )


def _reason(job_id: str, row: Item | None) -> DeadLetterReason:
    if not job_id:
        return DeadLetterReason.UNREADABLE
    if row is None:
        return DeadLetterReason.JOB_NOT_FOUND
    ended = JobState(int(row["state"]["N"])).terminal
    return DeadLetterReason.JOB_ENDED if ended else DeadLetterReason.JOB_OPEN


def _redrives(attributes: dict[str, Any]) -> int:
    value = attributes.get(_REDRIVES, {}).get("StringValue", "")
    return int(value) if value.isascii() and value.isdigit() else 0


def _tens(received: Sequence[_Received]) -> list[Sequence[_Received]]:
    return [received[start : start + MOST_AT_ONCE] for start in range(0, len(received), MOST_AT_ONCE)]
