"""What the conformance tests of message queues are given: a queue, the one behind it, and time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from airunner.domain.errors import AirunnerError
from airunner.queues.message_rules import ERROR_ATTRIBUTE, REASON_ATTRIBUTE
from airunner.queues.messages import NewMessage
from airunner.testing.conditions import until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from airunner.domain.errors import PermanentFailure
    from airunner.queues.messages import Message, MessageQueue, QueueDepth
    from airunner.testing.clock import ManualClock

MAX_RECEIVE_COUNT: Final = 3
"""After so many receives the queue under test puts a message aside."""
VISIBILITY_SECONDS: Final = 30
SHORT_WAIT_SECONDS: Final = 2
"""For waits whose end is the point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueUnderTest:
    """A queue with MAX_RECEIVE_COUNT, its dead-letter queue as a queue of its own, and their time."""

    queue: MessageQueue
    dead_letters: MessageQueue
    clock: ManualClock
    advance_service: Callable[[float], None]
    """Moves the time of the service behind the queue, if that has a time of its own."""
    count_waits: Callable[[], int]
    """Returns a number that grows with every receive that begins to wait."""

    def advance(self, seconds: float) -> None:
        """Let time pass for the queue and everything that uses it."""
        self.advance_service(seconds)
        self.clock.advance(seconds)

    async def waiting_receive(
        self, max_messages: int = 10, *, wait_seconds: int = 20
    ) -> asyncio.Task[Sequence[Message]]:
        """Begin a receive that has to wait, and return once it does."""
        before = self.count_waits()
        call = self.queue.receive(
            max_messages, wait_seconds=wait_seconds, visibility_seconds=VISIBILITY_SECONDS
        )
        task = asyncio.ensure_future(call)
        await until(lambda: task.done() or self.count_waits() > before)
        return task

    async def send(self, *bodies: str, delay_seconds: int = 0) -> list[str]:
        """Send messages, and return their ids; a refusal is raised."""
        messages = [NewMessage(body=body, delay_seconds=delay_seconds) for body in bodies]
        ids: list[str] = []
        for outcome in await self.queue.send(messages):
            if isinstance(outcome, AirunnerError):
                raise outcome
            ids.append(outcome)
        return ids

    async def receive(self, max_messages: int = 10) -> Sequence[Message]:
        """Receive messages without waiting."""
        return await self.queue.receive(max_messages, visibility_seconds=VISIBILITY_SECONDS)

    async def receive_one(self) -> Message:
        """Receive the one message that must be there."""
        (message,) = await self.receive()
        return message

    async def receive_at_last(self) -> Message:
        """Receive the one message that must come after a receive was given up.

        A service that did not notice may have delivered it to nobody; then it shows again.
        """
        messages = await self.receive()
        while not messages:
            self.advance(VISIBILITY_SECONDS)
            messages = await self.receive()
        (message,) = messages
        return message

    async def new_message(self, body: str = "body") -> Message:
        """Send a message and receive it."""
        await self.send(body)
        return await self.receive_one()

    async def letters(self) -> list[tuple[str, str, str]]:
        """Take body, reason and error of all dead letters."""
        return sorted(
            (
                message.body,
                message.attributes.get(REASON_ATTRIBUTE, ""),
                message.attributes.get(ERROR_ATTRIBUTE, ""),
            )
            for message in await take_all(self.dead_letters)
        )


class OpenQueue(Protocol):
    """Opens an empty queue."""

    def __call__(self) -> AbstractAsyncContextManager[QueueUnderTest]: ...


class RecordedQueue:
    """A MessageQueue that notes which messages were extended, and which calls about them have ended well."""

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue
        self.name = queue.name
        self.extended: list[str] = []
        self.released: list[str] = []
        self.deleted: list[str] = []
        self.put_aside: list[str] = []

    async def receive(
        self, max_messages: int, *, wait_seconds: int = 0, visibility_seconds: int = VISIBILITY_SECONDS
    ) -> Sequence[Message]:
        """Pass the call on."""
        return await self._queue.receive(
            max_messages, wait_seconds=wait_seconds, visibility_seconds=visibility_seconds
        )

    async def extend(self, message: Message, visibility_seconds: int) -> bool:
        """Pass the call on, and note the body."""
        is_held = await self._queue.extend(message, visibility_seconds)
        self.extended.append(message.body)
        return is_held

    async def release(self, message: Message, delay_seconds: float) -> None:
        """Pass the call on, and note the body."""
        await self._queue.release(message, delay_seconds)
        self.released.append(message.body)

    async def delete(self, messages: Sequence[Message]) -> Sequence[AirunnerError | None]:
        """Pass the call on, and note the bodies."""
        outcomes = await self._queue.delete(messages)
        pairs = zip(messages, outcomes, strict=True)
        self.deleted += [message.body for message, outcome in pairs if outcome is None]
        return outcomes

    async def send(self, messages: Sequence[NewMessage]) -> Sequence[str | AirunnerError]:
        """Pass the call on."""
        return await self._queue.send(messages)

    async def dead_letter(self, message: Message, failure: PermanentFailure) -> None:
        """Pass the call on, and note the body."""
        await self._queue.dead_letter(message, failure)
        self.put_aside.append(message.body)

    async def depth(self) -> QueueDepth:
        """Pass the call on."""
        return await self._queue.depth()


async def take_all(queue: MessageQueue) -> list[Message]:
    """Receive and delete what is in a queue, until nothing comes."""
    taken: list[Message] = []
    while messages := await queue.receive(10, visibility_seconds=VISIBILITY_SECONDS):
        taken += messages
        await queue.delete(messages)
    return taken
