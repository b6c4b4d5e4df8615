"""A message queue on SQS."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from airunner.aws import sqs
from airunner.domain.clock import SystemClock
from airunner.domain.errors import (
    AirunnerError,
    FailedPrecondition,
    InvalidArgument,
    MessageTooLarge,
    error_text,
)
from airunner.domain.outcomes import prepare_entries, send_entries, single
from airunner.queues.message_rules import check_message, dead_letter_attributes, hold_seconds
from airunner.queues.messages import Message, NewMessage, QueueDepth
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.aws.calls import Aws
    from airunner.aws.sqs import RedrivePolicy, SqsMessage
    from airunner.domain.clock import Clock
    from airunner.domain.errors import PermanentFailure

_log = get_logger("airunner.queues")

_SYSTEM_ATTRIBUTES: Final = ("ApproximateReceiveCount", "SentTimestamp")


class SqsQueue:
    """Implements MessageQueue on a standard queue of SQS, through a connection that others open and close.

    The redrive policy of the queue is read once, before the first receive: it says which receive is the last
    one, and where the dead-letter queue is. The clock measures how long a receive holds its message.
    """

    def __init__(self, aws: Aws, url: str, *, clock: Clock | None = None, dead_letter_url: str = "") -> None:
        """Make the queue of a URL; `dead_letter_url` is for one whose redrive policy does not name any."""
        self._aws = aws
        self._url = url
        self._clock = clock or SystemClock()
        self._dead_letter_url = dead_letter_url
        self._redrive: RedrivePolicy | None = None
        self._is_redrive_known = False
        self._reading = asyncio.Lock()

    @property
    def url(self) -> str:
        """Where the queue is."""
        return self._url

    @property
    def name(self) -> str:
        """The name of the queue in logs."""
        return self._url.rpartition("/")[2]

    async def receive(
        self, max_messages: int, *, wait_seconds: int = 0, visibility_seconds: int = 30
    ) -> Sequence[Message]:
        """Return up to ten messages, waiting for the first."""
        redrive = await self.redrive_policy()
        received = await sqs.receive(
            self._aws,
            self._url,
            max_messages,
            wait_seconds=min(wait_seconds, sqs.MAX_WAIT_SECONDS),
            visibility_seconds=visibility_seconds,
            system_attributes=_SYSTEM_ATTRIBUTES,
            attributes=("All",),
        )
        now, last = self._clock.now(), redrive.max_receive_count if redrive else None
        return [_message(message, last, now) for message in received]

    async def extend(self, message: Message, visibility_seconds: int) -> bool:
        """Hide a message for so long from now; return whether this receipt still holds it."""
        seconds = hold_seconds(message, visibility_seconds, self._clock.now())
        return seconds > 0 and await self._hide(message, seconds)

    async def release(self, message: Message, delay_seconds: float) -> None:
        """Let others receive a message after a delay."""
        await self._hide(message, max(0, hold_seconds(message, delay_seconds, self._clock.now())))

    async def delete(self, messages: Sequence[Message]) -> Sequence[AirunnerError | None]:
        """Delete messages for good, in tens."""
        outcomes = await sqs.delete(self._aws, self._url, [message.receipt for message in messages])
        return [None if error is None or sqs.is_gone(error) else error for error in outcomes]

    async def send(self, messages: Sequence[NewMessage]) -> Sequence[str | AirunnerError]:
        """Send messages, in tens and no more bytes in a call than SQS takes."""
        return await self._send(self._url, messages)

    async def dead_letter(self, message: Message, failure: PermanentFailure) -> None:
        """Put a message aside, with the reason; without it where SQS has no room for that."""
        url = await self._find_dead_letters()
        letter = NewMessage(body=message.body, attributes=dead_letter_attributes(message, failure))
        outcomes = await self._send(url, [letter])
        if isinstance(outcomes[0], InvalidArgument | MessageTooLarge):
            bare = NewMessage(body=message.body, attributes=message.attributes)
            outcomes = await self._send(url, [bare])
        single(outcomes)
        for error in filter(None, await self.delete([message])):
            _log.warning(
                "dlq.delete_failed", queue=self.name, key=message.message_id, error=error_text(error)
            )

    async def depth(self) -> QueueDepth:
        """Return how many messages there are."""
        return QueueDepth(**await sqs.count_messages(self._aws, self._url))

    async def redrive_policy(self) -> RedrivePolicy | None:
        """Return after how many receives the queue puts a message aside, and where; None if it never does."""
        async with self._reading:
            if not self._is_redrive_known:
                self._redrive = await sqs.read_redrive_policy(self._aws, self._url)
                self._is_redrive_known = True
        return self._redrive

    async def _hide(self, message: Message, seconds: int) -> bool:
        (error,) = await sqs.change_visibility(self._aws, self._url, [message.receipt], seconds)
        if error is None:
            return True
        if sqs.is_gone(error):
            return False
        raise error

    async def _send(self, url: str, messages: Sequence[NewMessage]) -> list[str | AirunnerError]:
        async def send(entries: Sequence[sqs.SqsEntry]) -> list[str | AirunnerError]:
            return await sqs.send(self._aws, url, entries)

        return await send_entries(prepare_entries(messages, _entry), send)

    async def _find_dead_letters(self) -> str:
        redrive = await self.redrive_policy()
        url = self._dead_letter_url or (redrive.dead_letter_url if redrive else "")
        if not url:
            raise FailedPrecondition(f"queue {self.name} has no dead-letter queue")
        return url


def _entry(message: NewMessage) -> sqs.SqsEntry:
    check_message(message)
    return sqs.SqsEntry(body=message.body, delay_seconds=message.delay_seconds, attributes=message.attributes)


def _message(message: SqsMessage, max_receive_count: int | None, now: int) -> Message:
    return Message(
        message_id=message.message_id,
        body=message.body,
        receipt=message.receipt,
        receive_count=message.receive_count,
        last_receive=max_receive_count is not None and message.receive_count >= max_receive_count,
        sent_at=message.sent_at,
        received_at=now,
        attributes=message.attributes,
    )
