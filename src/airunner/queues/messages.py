"""Message queues: what one can do, and the Source over it that a Consumer works on.

Delivery is at least once and in about the order of sending. A message that was received stays hidden for its
visibility timeout; whoever received it extends that, deletes the message, or releases it. The receipt is the
fence: once the message was received again, an older receipt changes nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from airunner.domain.background import BackgroundTasks
from airunner.domain.errors import (
    AirunnerError,
    MessageTooLarge,
    PermanentFailure,
    ResourceExhausted,
    Unavailable,
    error_text,
)
from airunner.domain.retry import RetryPolicy, retry
from airunner.queues.base import Delivery, Hold
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from airunner.domain.clock import Clock

T = TypeVar("T")

_log = get_logger("airunner.queues")

UNHANDLED: Final = "unhandled"
"""The code of a message that can be read, and of a type that nothing handles."""
UNDECODABLE: Final = "undecodable"
"""The code of a message that nobody can read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMessage:
    """A message to send."""

    body: str
    """Any text but an empty one, of the characters that XML has."""
    delay_seconds: int = 0
    """How long nobody receives it, at most 15 minutes."""
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as one receive returned it."""

    message_id: str
    """The same each time that the message is received."""
    body: str
    receipt: str
    """Of this receive; opaque."""
    receive_count: int
    """How often it was received, this time included."""
    last_receive: bool
    """Whether the queue puts the message aside rather than deliver it once more."""
    sent_at: int
    received_at: int
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Those that are texts or numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepth:
    """About how many messages can be received, are held by somebody, and are not due yet."""

    visible: int
    in_flight: int
    delayed: int


class MessageQueue(Protocol):
    """One queue, with the dead-letter queue behind it.

    What calls raise are AirunnerErrors: Unavailable and ResourceExhausted may pass, others do not. `delete`
    and `send` raise none of them: each message has its own outcome.
    """

    @property
    def name(self) -> str:
        """The name of the queue in logs."""

    async def receive(
        self, max_messages: int, *, wait_seconds: int = 0, visibility_seconds: int = 30
    ) -> Sequence[Message]:
        """Return up to so many messages, hidden from others for so long; none is no error.

        Waits for the first message, 20 s at most, and not for more: fewer than are there may be returned.
        Cancelling the call loses no message; at worst one that was on its way counts as received, and shows
        again when its visibility timeout is over.
        """

    async def extend(self, message: Message, visibility_seconds: int) -> bool:
        """Hide a message for so long from now; return whether this receipt still holds it.

        It does not once the message was deleted, its visibility timeout was over, or MAX_HOLD_SECONDS have
        passed since the receive; before that, no more is granted than what is left of them.
        """

    async def release(self, message: Message, delay_seconds: float) -> None:
        """Let others receive a message after a delay. Nothing happens if it is not held any more.

        The delay is rounded up to whole seconds, and cut to what is left of MAX_HOLD_SECONDS.
        """

    async def delete(self, messages: Sequence[Message]) -> Sequence[AirunnerError | None]:
        """Delete messages for good; return for each why it failed, if it did. May be repeated.

        One that was received again meanwhile stays, and that is no failure.
        """

    async def send(self, messages: Sequence[NewMessage]) -> Sequence[str | AirunnerError]:
        """Send messages; return for each its id, or why it was not sent.

        InvalidArgument and MessageTooLarge are for those that will never be taken. A send whose reply is lost
        is repeated, so that a message may be there twice.
        """

    async def dead_letter(self, message: Message, failure: PermanentFailure) -> None:
        """Put a message aside: send its body to the dead-letter queue with the reason, then delete it.

        What fails before the delete is raised, and the message stays. A delete that fails is logged: the
        message comes again, so it may be put aside twice, and is never lost. FailedPrecondition if there is
        no dead-letter queue.
        """

    async def depth(self) -> QueueDepth:
        """Return how many messages there are."""


class UnhandledMessage(Exception):
    """A decoder raises this for a body that it can read, and of a type that nothing handles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received(Generic[T]):
    """What a message says, and the message that says it."""

    value: T
    message: Message


class MessageSource(Generic[T]):
    """Implements Source over a MessageQueue.

    `decode` makes a value of a body. A body for which it raises is put aside at once: as a PermanentFailure
    says, as `unhandled` for an UnhandledMessage, else as `undecodable`; no delivery is made of it, and none
    waits for that. What cannot be put aside comes again when its visibility timeout is over.

    Settlements are repeated while the queue is away. One that the queue refuses is logged and given up: the
    message comes again.
    """

    def __init__(
        self,
        queue: MessageQueue,
        decode: Callable[[str], T],
        *,
        clock: Clock,
        visibility_seconds: int = 60,
        wait_seconds: int = 20,
        policy: RetryPolicy | None = None,
    ) -> None:
        self._queue = queue
        self._decode = decode
        self._clock = clock
        self._visibility_seconds = visibility_seconds
        self._wait_seconds = wait_seconds
        self._policy = policy or RetryPolicy()
        self._background_tasks = BackgroundTasks(self._log_undecoded)
        self._extensions: dict[Delivery[Received[T]], asyncio.Future[bool]] = {}
        self._releasing: set[Delivery[Received[T]]] = set()

    async def receive(self, max_deliveries: int) -> Sequence[Delivery[Received[T]]]:
        """Wait for messages, and return those that can be decoded."""
        messages = await self._queue.receive(
            max_deliveries, wait_seconds=self._wait_seconds, visibility_seconds=self._visibility_seconds
        )
        return [delivery for delivery in map(self._delivery, messages) if delivery]

    async def extend(self, delivery: Delivery[Received[T]]) -> Hold:
        """Extend the visibility timeout, and return when a third of it is over."""
        if delivery not in self._releasing:
            call = self._queue.extend(delivery.body.message, self._visibility_seconds)
            extension = self._extensions[delivery] = asyncio.ensure_future(call)
            try:
                is_held = await extension
            finally:
                del self._extensions[delivery]
            if not is_held:
                return Hold.LOST
        await self._clock.sleep(self._visibility_seconds / 3)
        return Hold.HELD

    async def ack(self, settlements: Sequence[tuple[Delivery[Received[T]], object]]) -> None:
        """Delete messages, many in one call. A queue has no use for the results of their processing."""
        left: Sequence[Message] = [delivery.body.message for delivery, _ in settlements]

        async def delete() -> None:
            nonlocal left
            outcomes = zip(left, await self._queue.delete(left), strict=True)
            failed = [(message, error) for message, error in outcomes if error]
            left = [message for message, error in failed if _may_pass(error)]
            for message, error in failed:
                if not _may_pass(error):
                    self._log_given_up("delete", message.message_id, error)
            if left:
                raise next(error for _, error in failed if _may_pass(error))

        await self._repeat("delete", delete)

    async def release(self, delivery: Delivery[Received[T]], delay_seconds: float, error: str) -> None:  # noqa: ARG002  a queue keeps no errors
        """Make a message visible after the delay."""
        message = delivery.body.message
        self._releasing.add(delivery)
        try:
            if extension := self._extensions.get(delivery):
                # One that arrives after the release would hide the message again.
                await asyncio.wait({extension})
            await self._settle("release", message, lambda: self._queue.release(message, delay_seconds))
        finally:
            self._releasing.discard(delivery)

    async def dead_letter(self, delivery: Delivery[Received[T]], failure: PermanentFailure) -> None:
        """Put a message aside, with the reason."""
        message = delivery.body.message
        await self._settle("dead_letter", message, lambda: self._put_aside(message, failure))

    async def finish(self) -> None:
        """Return once all that could not be decoded is put aside. Call it after the end of the consumer."""
        await self._background_tasks.finish()

    def _delivery(self, message: Message) -> Delivery[Received[T]] | None:
        try:
            value = self._decode(message.body)
        except Exception as error:  # noqa: BLE001 - whatever a decoder raises, nobody can process the body
            self._background_tasks.begin(message.message_id, self._put_aside(message, _refusal(error)))
            return None
        return Delivery(
            body=Received(value=value, message=message),
            key=message.message_id,
            attempt=message.receive_count,
            extend_after_seconds=self._visibility_seconds / 3,
        )

    async def _put_aside(self, message: Message, failure: PermanentFailure) -> None:
        await self._queue.dead_letter(message, failure)
        _log.warning("dlq.forwarded", queue=self._queue.name, key=message.message_id, reason=failure.code)

    async def _settle(self, action: str, message: Message, call: Callable[[], Awaitable[None]]) -> bool:
        """Do something with a message; return False if the queue refuses it, and the message comes again."""
        try:
            await self._repeat(action, call)
        except AirunnerError as error:
            self._log_given_up(action, message.message_id, error)
            return False
        return True

    async def _repeat(self, action: str, call: Callable[[], Awaitable[None]]) -> None:
        def log(error: Exception, failures: int) -> None:
            _log.warning(
                "settlement.repeated",
                queue=self._queue.name,
                action=action,
                failures=failures,
                error=error_text(error),
            )

        await retry(self._policy, self._clock, call, retry_if=_may_pass, on_failure=log)

    def _log_given_up(self, action: str, message_id: str, error: AirunnerError) -> None:
        _log.error(
            "settlement.given_up",
            queue=self._queue.name,
            action=action,
            key=message_id,
            error=error_text(error),
        )

    def _log_undecoded(self, message_id: str, error: BaseException) -> None:
        _log.error("dlq.forward_failed", queue=self._queue.name, key=message_id, error=error_text(error))


def _refusal(error: Exception) -> PermanentFailure:
    """Return why a body is put aside that a decoder raised for."""
    if isinstance(error, PermanentFailure):
        return error
    code = UNHANDLED if isinstance(error, UnhandledMessage) else UNDECODABLE
    return PermanentFailure(code, str(error) or type(error).__name__)


def _may_pass(error: Exception) -> bool:
    """Return whether the same call may succeed later."""
    return isinstance(error, Unavailable | ResourceExhausted) and not isinstance(error, MessageTooLarge)
