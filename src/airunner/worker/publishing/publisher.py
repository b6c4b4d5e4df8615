"""Publishing the events of one attempt: its Batcher with a timer, a bounded store of events, and retries."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.domain.background import WakeUp
from airunner.domain.batching import Batcher
from airunner.domain.errors import (
    AirunnerError,
    InvalidArgument,
    InvalidTaskToken,
    MessageTooLarge,
    NotFound,
    SequenceMismatch,
    VisibilityLost,
    retry_after_seconds,
)
from airunner.domain.event import Gap, StreamType
from airunner.domain.retry import RetryPolicy
from airunner.telemetry.logs import get_logger
from airunner.worker.publishing.batch_metrics import BatchMetrics
from airunner.worker.publishing.unpublished import MEMORY_BYTES, UnpublishedEvents, gap_event

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from airunner.domain.answers import Published
    from airunner.domain.batching import Flush
    from airunner.domain.clock import Clock, Timer
    from airunner.domain.event import Event, EventData
    from airunner.services.api import EventsApi
    from airunner.worker.attempt import Attempt
    from airunner.worker.publishing.background_spool import BackgroundSpool

_log = get_logger("airunner.worker")

CALL_BYTES: Final = 1024 * 1024
"""The maximum that one call carries, but for a single event that is larger."""

_SPILL_AFTER_MS: Final = 1000


class Publisher:
    """Batches the events of one attempt and publishes them in order, each until the server acknowledged it.

    No event is published before its batch is due: the events of an attempt that is over by then are all
    returned by `finish`, to be reported with its end in one call.

    While a call is on its way the next events gather and go together in the next one. A call to an
    unreachable server is repeated for as long as it takes; NOT_FOUND ends the attempt, as do refusals of its
    task token for long enough: from then on every call raises VisibilityLost, and `lost` is done.

    With memory full the producer has to wait; when the server has then taken nothing for a second, further
    events go to the spool, if there is one, until that has been read up again. So a job whose server is
    there never touches the disk, and one whose server is away has to wait only when the spool is full too.

    Call `abandon` in any case, after `finish` or instead of it.
    """

    def __init__(
        self,
        attempt: Attempt,
        *,
        events: EventsApi,
        clock: Clock,
        on_cancel: Callable[[], None],
        policy: RetryPolicy | None = None,
        waiting_bytes: int = MEMORY_BYTES,
        spool: BackgroundSpool | None = None,
    ) -> None:
        self._attempt = attempt
        self._batcher = batcher = Batcher(attempt.job.execution.batching)
        self._events = events
        self._clock = clock
        self._on_cancel = on_cancel
        self._policy = policy or RetryPolicy()
        self._metrics = BatchMetrics(attempt.job)
        self._next_stored = 1
        self._stop_gauge = telemetry.events_buffered.follow(lambda: batcher.next_sequence - self._next_stored)
        self._room = WakeUp(clock)
        self._waiting = UnpublishedEvents(spool, memory_bytes=waiting_bytes, on_change=self._room.notify)
        self._timer: Timer | None = None
        self._timer_at = 0
        self._sender: asyncio.Task[None] | None = None
        self._closing = False
        self._singly = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when nothing of this attempt will be accepted any more, or publishing broke down."""
        batcher.watched = attempt.watched
        attempt.on_watched = self._apply_watched

    @property
    def last_sequence(self) -> int:
        """The sequence of the last event that was added; 0 if there is none."""
        return self._batcher.next_sequence - 1

    @property
    def output_sha256(self) -> bytes:
        """The digest of all output that was added."""
        return self._batcher.output_sha256

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way to the server, or waits for it: then `finish` does not wait."""
        return not self._sender and not self._waiting

    def add(self, data: EventData, timestamp: int | None = None) -> None:
        """Add an event that is not output; without a timestamp it happens now."""
        self.raise_if_lost()
        self._take(self._batcher.add(data, self._clock.now() if timestamp is None else timestamp))

    def add_output(self, lines: Sequence[bytes], stream: StreamType) -> Awaitable[None] | None:
        """Add output; with too much waiting for the server, return what to await before adding more."""
        self.raise_if_lost()
        self._take(self._batcher.add_output(lines, stream, self._clock.now()))
        return self._until_room() if self._waiting.full else None

    def add_gap(self, lines: int, reason: str) -> None:
        """Add a Gap in the place of lines that could not be kept."""
        first = self._batcher.next_sequence
        telemetry.events_lost.add(lines)
        self.add(Gap(first_sequence=first, last_sequence=first + lines - 1, reason=reason))

    async def finish(self, last: Sequence[EventData] = ()) -> list[Event]:
        """Add the last events and return those that are still to be reported with the attempt's end.

        What does not fit into one call is published before, so that a small job needs no call of its own.
        """
        self._closing = True
        for data in last:
            self.add(data)
        self._take(self._batcher.close(self._clock.now()))
        self._disarm()
        while self._sender or self._waiting.size_bytes > CALL_BYTES:
            self._send()
            if self._sender:
                await asyncio.wait({self._sender})
            self.raise_if_lost()
        self.raise_if_lost()
        return await self._waiting.all()

    def raise_if_lost(self) -> None:
        """Raise the error that publishing ended with, if it ended."""
        if self.lost.done():
            self.lost.result()

    async def abandon(self) -> None:
        """Publish nothing more, and leave nothing on disk. Idempotent, and harmless after `finish`."""
        self._closing = True
        self._disarm()
        self._stop_gauge()
        self._attempt.on_watched = None
        if self._sender:
            self._sender.cancel()
            await asyncio.wait({self._sender})
        if self._attempt.refusals.lost:
            self._count_dropped()
        await self._waiting.close()
        self.lost.cancel()

    def _count_dropped(self) -> None:
        """Tell how many events of a lost attempt nobody will see, once."""
        dropped = self._batcher.next_sequence - self._next_stored
        self._next_stored = self._batcher.next_sequence
        telemetry.events_dropped.add(dropped)
        if dropped:
            _log.error("events.dropped", job_id=self._attempt.job.job_id, events=dropped)

    def _take(self, flushes: Sequence[Flush]) -> None:
        for flush in flushes:
            for event in flush.events:
                self._waiting.append(event)
            self._metrics.flushed(flush, self._clock.now())
        if not self._closing:
            self._arm()
            self._send()

    def _arm(self) -> None:
        """Set the timer for when the Batcher has something to flush; too early does no harm."""
        due_at = self._batcher.due_at
        if due_at is None or (self._timer and self._timer_at <= due_at):
            return
        self._disarm()
        self._timer_at = due_at
        self._timer = self._clock.call_at(due_at, self._tick)

    def _disarm(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        self._take(self._batcher.tick(self._clock.now()))

    def _apply_watched(self) -> None:
        self._batcher.watched = self._attempt.watched
        # No output is added: the Batcher only decides anew how long what it holds may wait.
        self._take(self._batcher.add_output((), StreamType.STDOUT, self._clock.now()))

    def _send(self) -> None:
        if self._waiting and not self._sender and not self.lost.done():
            name = f"publish {self._attempt.job.job_id}"
            self._sender = asyncio.create_task(self._publish_waiting(), name=name)
            self._sender.add_done_callback(self._sent)

    def _sent(self, sender: asyncio.Task[None]) -> None:
        self._sender = None
        error = None if sender.cancelled() else sender.exception()
        if error and not self.lost.done():
            self.lost.set_exception(error)
            self.lost.exception()  # it is also raised by the next call; nobody has to read it here
        if not self._closing:
            self._send()
        self._room.notify()

    async def _publish_waiting(self) -> None:
        failures = 0
        while self._waiting and not (self._closing and self._waiting.size_bytes <= CALL_BYTES):
            call = await self._waiting.head(0 if self._singly else CALL_BYTES)
            began = self._clock.now()
            try:
                answer = await self._events.publish_events(self._attempt.task_token, call)
            except NotFound:
                raise VisibilityLost from None
            except InvalidTaskToken as error:
                if self._attempt.refusals.refused(self._clock.monotonic()):
                    raise VisibilityLost from None
                failures = await self._pause(failures, error)
            except SequenceMismatch as mismatch:
                self._attempt.refusals.accepted()
                if not await self._resume(mismatch.expected):
                    failures = await self._pause(failures, mismatch)
            except (InvalidArgument, MessageTooLarge) as error:
                if isinstance(call[0].data, Gap):
                    failures = await self._pause(failures, error)
                elif len(call) == 1:
                    self._give_up(call[0], error)
                self._singly = True
            except AirunnerError as error:
                failures = await self._pause(failures, error)
            else:
                failures = 0
                telemetry.publish_latency.record((self._clock.now() - began) / 1000)
                await self._acknowledged(answer)

    async def _acknowledged(self, answer: Published) -> None:
        self._attempt.refusals.accepted()
        self._singly = False
        self._next_stored = answer.next_sequence
        if answer.cancel_requested:
            self._on_cancel()
        self._attempt.set_watched(answer.watched)
        # Last: it may have to wait for the disk.
        await self._waiting.drop_before(answer.next_sequence)
        self._room.notify()

    async def _resume(self, expected: int) -> bool:
        """Go on with the sequence that the server expects; return whether that is another than ours.

        What it lacks and we no longer have is lost, and a Gap says so.
        """
        before = (await self._waiting.head(0))[0].sequence
        await self._waiting.drop_before(expected)
        first = await self._waiting.head(0)
        if first and first[0].sequence > expected:
            last = first[0].sequence - 1
            _log.error(
                "events.lost", job_id=self._attempt.job.job_id, first_sequence=expected, last_sequence=last
            )
            reason = "the server no longer has these events"
            self._waiting.prepend(gap_event(expected, last, first[0].timestamp, reason))
        return before != expected

    def _give_up(self, event: Event, error: AirunnerError) -> None:
        """Replace an event that the server will never take, so that the job can end."""
        _log.error(
            "events.refused", job_id=self._attempt.job.job_id, sequence=event.sequence, error=error.text
        )
        reason = "the server refused these events"
        self._waiting.replace_first(gap_event(event.sequence, event.last_sequence, event.timestamp, reason))

    async def _pause(self, failures: int, error: AirunnerError) -> int:
        failures += 1
        telemetry.publish_retries.add(1)
        _log.warning("publish.failed", job_id=self._attempt.job.job_id, failures=failures, error=error.text)
        await self._clock.sleep(self._policy.delay(failures, at_least=retry_after_seconds(error)))
        return failures

    async def _until_room(self) -> None:
        while self._waiting.full and not self.lost.done():
            if not await self._room.wait(self._clock.now() + _SPILL_AFTER_MS):
                self._waiting.spill()
        self.raise_if_lost()
