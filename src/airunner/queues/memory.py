"""A message queue in this process, for tests and for trying a processor on one machine."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airunner.domain.background import WakeUp
from airunner.domain.errors import FailedPrecondition
from airunner.domain.outcomes import prepare_entries
from airunner.queues.message_rules import check_message, dead_letter_attributes, hold_seconds
from airunner.queues.messages import Message, NewMessage, QueueDepth

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.errors import AirunnerError, PermanentFailure


class MemoryQueue:
    """Implements MessageQueue. Messages are received in the order of sending, and end with the process."""

    def __init__(self, clock: Clock, *, name: str = "memory", max_receive_count: int = 0) -> None:
        """Make an empty queue; one with a `max_receive_count` has a dead-letter queue behind it."""
        self._clock = clock
        self._name = name
        self._max_receive_count = max_receive_count
        self._kept: dict[str, _Kept] = {}
        self._change = WakeUp(clock)
        self.dead_letters = MemoryQueue(clock, name=f"{name}-dlq") if max_receive_count else None

    @property
    def name(self) -> str:
        """The name of the queue in logs."""
        return self._name

    async def receive(
        self, max_messages: int, *, wait_seconds: int = 0, visibility_seconds: int = 30
    ) -> Sequence[Message]:
        """Return up to so many messages, waiting for the first."""
        give_up_at = self._clock.now() + wait_seconds * 1000
        while not (messages := self._take(max_messages, visibility_seconds)):
            if self._clock.now() >= give_up_at:
                break
            await self._change.wait(min([give_up_at, *(kept.visible_at for kept in self._kept.values())]))
        return messages

    async def extend(self, message: Message, visibility_seconds: int) -> bool:
        """Hide a message for so long from now; return whether this receipt still holds it."""
        now = self._clock.now()
        kept, seconds = self._held(message), hold_seconds(message, visibility_seconds, now)
        if kept is None or seconds <= 0:
            return False
        kept.visible_at = now + seconds * 1000
        return True

    async def release(self, message: Message, delay_seconds: float) -> None:
        """Let others receive a message after a delay."""
        now = self._clock.now()
        if kept := self._held(message):
            kept.visible_at = now + max(0, hold_seconds(message, delay_seconds, now)) * 1000
            self._change.notify()

    async def delete(self, messages: Sequence[Message]) -> Sequence[AirunnerError | None]:
        """Delete messages for good."""
        for message in messages:
            kept = self._kept.get(message.message_id)
            if kept and kept.receipt == message.receipt:
                del self._kept[message.message_id]
        return [None] * len(messages)

    async def send(self, messages: Sequence[NewMessage]) -> Sequence[str | AirunnerError]:
        """Send messages; return for each its id, or why it was not sent."""
        return prepare_entries(messages, lambda message: self._keep(check_message(message)))

    async def dead_letter(self, message: Message, failure: PermanentFailure) -> None:
        """Put a message aside, with the reason."""
        if self.dead_letters is None:
            raise FailedPrecondition(f"queue {self._name} has no dead-letter queue")
        attributes = dead_letter_attributes(message, failure)
        self.dead_letters._keep(NewMessage(body=message.body, attributes=attributes))  # noqa: SLF001 - of this class
        await self.delete([message])

    async def depth(self) -> QueueDepth:
        """Return how many messages there are."""
        now = self._clock.now()
        hidden = [kept for kept in self._kept.values() if kept.visible_at > now]
        in_flight = sum(kept.receive_count > 0 for kept in hidden)
        return QueueDepth(
            visible=len(self._kept) - len(hidden), in_flight=in_flight, delayed=len(hidden) - in_flight
        )

    def _keep(self, message: NewMessage) -> str:
        message_id, now = str(uuid.uuid4()), self._clock.now()
        self._kept[message_id] = _Kept(
            body=message.body,
            attributes=message.attributes,
            sent_at=now,
            visible_at=now + message.delay_seconds * 1000,
        )
        self._change.notify()
        return message_id

    def _take(self, max_messages: int, visibility_seconds: int) -> list[Message]:
        """Return messages that are visible now, and put those aside that were received too often."""
        now = self._clock.now()
        messages: list[Message] = []
        for message_id, kept in list(self._kept.items()):
            if len(messages) == max_messages:
                break
            if kept.visible_at > now:
                continue
            if self.dead_letters and kept.receive_count >= self._max_receive_count:
                del self._kept[message_id]
                self.dead_letters._keep(NewMessage(body=kept.body, attributes=kept.attributes))  # noqa: SLF001 - of this class
                continue
            messages.append(self._deliver(message_id, kept, visibility_seconds))
        return messages

    def _deliver(self, message_id: str, kept: _Kept, visibility_seconds: int) -> Message:
        now = self._clock.now()
        kept.receive_count += 1
        kept.receipt = f"{message_id}#{kept.receive_count}"
        kept.visible_at = now + visibility_seconds * 1000
        return Message(
            message_id=message_id,
            body=kept.body,
            receipt=kept.receipt,
            receive_count=kept.receive_count,
            last_receive=kept.receive_count == self._max_receive_count,
            sent_at=kept.sent_at,
            received_at=now,
            attributes=kept.attributes,
        )

    def _held(self, message: Message) -> _Kept | None:
        kept = self._kept.get(message.message_id)
        is_held = kept and kept.receipt == message.receipt and kept.visible_at > self._clock.now()
        return kept if is_held else None


@dataclass(slots=True, kw_only=True)
class _Kept:
    """A message in the queue, and its newest receipt."""

    body: str
    sent_at: int
    visible_at: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    receive_count: int = 0
    receipt: str = ""
