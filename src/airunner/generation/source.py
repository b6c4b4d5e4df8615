"""The message queue of generation as a source of work."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from airunner.domain.errors import AirunnerError, error_text
from airunner.domain.retry import RetryPolicy, retry
from airunner.generation.bodies import WorkRequest, letter_of, read_body
from airunner.generation.verdict import GenerationFailed
from airunner.queues.message_rules import MAX_MESSAGE_BYTES
from airunner.queues.messages import MessageSource, Received
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.errors import PermanentFailure
    from airunner.generation.sessions import SessionTable
    from airunner.handlers.registry import Handler
    from airunner.queues.base import Delivery
    from airunner.queues.messages import MessageQueue

_log = get_logger("airunner.generation")

_LEAST_PAUSE_SECONDS = 1.0
# With room for its attributes. A letter is ASCII, where what was asked may have more bytes than it had. One
# that would be too large is the message as it came, with the reason as an attribute.
_MAX_LETTER_BYTES = MAX_MESSAGE_BYTES - 8 * 1024
_LETTER_NOTED = RetryPolicy(first_seconds=0.2, max_seconds=2.0, attempts=5)


class GenerationSource(MessageSource[WorkRequest]):
    """Receives only while PostgreSQL answers, and sends letters that say what became of failed work."""

    def __init__(
        self,
        queue: MessageQueue,
        sessions: SessionTable,
        handlers: Mapping[str, Handler],
        *,
        clock: Clock,
        visibility_seconds: int,
        wait_seconds: int = 20,
        idle_seconds: float = 0.0,
    ) -> None:
        super().__init__(
            queue,
            partial(read_body, handlers=handlers),
            clock=clock,
            visibility_seconds=visibility_seconds,
            wait_seconds=wait_seconds,
        )
        self._sessions = sessions
        self._idle_seconds = idle_seconds
        self.last_answer_at = clock.monotonic()
        """When PostgreSQL and the queue last answered, by the monotonic clock."""

    async def receive(self, max_deliveries: int) -> Sequence[Delivery[Received[WorkRequest]]]:
        """Wait for messages; what fails is logged, and paused after, and is no reason to end."""
        try:
            # A message that nobody can write a word about is better left where it is.
            await self._sessions.answers()
            deliveries = await super().receive(max_deliveries)
        except Exception as error:  # noqa: BLE001  whatever it is, the next poll follows
            _log.warning("worker.loop_error", error=error_text(error))
            await self._clock.sleep(max(_LEAST_PAUSE_SECONDS, self._idle_seconds))
            return ()
        self.last_answer_at = self._clock.monotonic()
        if not deliveries and self._idle_seconds:
            await self._clock.sleep(self._idle_seconds)
        return deliveries

    async def dead_letter(self, delivery: Delivery[Received[WorkRequest]], failure: PermanentFailure) -> None:
        """Send the letter, delete the message, and write down that the letter is sent.

        In this order: a death in between repeats what follows, and never loses the letter. One that the
        dead-letter queue refuses is sent with the next delivery.
        """
        if not isinstance(failure, GenerationFailed):
            await super().dead_letter(delivery, failure)
            return
        message, letter = delivery.body.message, letter_of(failure)
        if len(letter) <= _MAX_LETTER_BYTES:
            message = replace(message, body=letter)
        if not await self._settle("dead_letter", message, lambda: self._put_aside(message, failure)):
            return
        with suppress(AirunnerError):
            await retry(
                _LETTER_NOTED,
                self._clock,
                lambda: self._sessions.note_letter(failure.session.id),
                retry_if=lambda error: isinstance(error, AirunnerError),
            )
