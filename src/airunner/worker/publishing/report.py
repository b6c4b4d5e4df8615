"""What every attempt tells the server: its output on the way, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from airunner.domain.event import EventData, ProcessEnd, ProcessError, ProcessStart, StreamType
from airunner.domain.job import JobResult, Outcome
from airunner.queues.base import TryAgain
from airunner.worker.attempt import Attempt, JobOutcome
from airunner.worker.publishing.batch_metrics import BatchMetrics

if TYPE_CHECKING:
    from airunner.domain.batching import Batcher
    from airunner.domain.clock import Clock
    from airunner.domain.event import Event
    from airunner.queues.base import Delivery
    from airunner.worker.publishing.publisher import Publisher
    from airunner.worker.secrets.redaction import LineRedactor

T = TypeVar("T")

_ERROR_TEXT_LENGTH: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended, in the words of its result."""

    outcome: Outcome
    exit_code: int
    error: str = ""
    notes: tuple[str, ...] = ()
    """What becomes PROCESS_ERROR events."""
    output_json: str = ""
    again: bool = False
    """Whether the job is to be tried again instead of ending here."""


class AttemptReport:
    """Publishes what an attempt says, without its secrets, and closes it with a verdict.

    Nothing is published before there is something to say, or somebody opens it: an attempt that is over by
    then tells all with its end, in one call.
    """

    def __init__(
        self,
        delivery: Delivery[Attempt],
        batcher: Batcher,
        clock: Clock,
        *,
        open_publisher: Callable[[], Publisher],
        redactor: LineRedactor | None = None,
    ) -> None:
        self._delivery = delivery
        self._batcher = batcher
        self._clock = clock
        self._open_publisher = open_publisher
        self._redactor = redactor
        self._publisher: Publisher | None = None
        self._start: ProcessStart | None = None
        self._on_lost: Callable[[], object] | None = None
        self._over = False

    def begin(self, pid: int, started_at: int, on_lost: Callable[[], object]) -> None:
        """Say that the attempt has begun: from here on it costs a try.

        `on_lost` is called when nothing of the attempt will be accepted any more, or publishing broke down.
        """
        self._delivery.body.begun = True
        worker_id = self._delivery.body.job.life.worker_id
        self._start = ProcessStart(pid=pid, started_at=started_at, worker_id=worker_id)
        self._on_lost = on_lost
        if self._publisher:
            self._publisher.add(self._start)

    def open(self) -> None:
        """Publish from now on what was said already. Nothing happens once the attempt is over."""
        if not self._over:
            self._opened()

    def raise_if_lost(self) -> None:
        """Raise what publishing ended with, if it ended."""
        if self._publisher and self._publisher.lost.done():
            self._publisher.lost.result()

    async def close(self) -> None:
        """Publish nothing more."""
        self._over = True
        if self._publisher:
            await self._publisher.abandon()

    def add(self, data: EventData) -> None:
        """Take an event that is not output."""
        self._opened().add(data)

    def output(self, lines: list[bytes], is_stderr: bool) -> Awaitable[None] | None:
        """Take output; with too much waiting for the server, return what to await before bringing more."""
        if self._redactor:
            lines = self._redactor.feed(lines, is_stderr)
        return self._publish(lines, is_stderr)

    def shown(self, text: str) -> str:
        """Return a text without secrets."""
        return self._redactor.text(text) if self._redactor else text

    async def refuse(self, reason: str, exit_code: int, started_at: int) -> JobOutcome:
        """End an attempt that cannot begin."""
        text = self.shown(reason)[:_ERROR_TEXT_LENGTH]
        verdict = AttemptEnd(outcome=Outcome.FAILURE, exit_code=exit_code, error=text, notes=(text,))
        return await self.conclude(
            verdict, ProcessEnd(pid=0, exit_code=exit_code, run_duration_ms=0), started_at
        )

    async def conclude(self, verdict: AttemptEnd, end: ProcessEnd, started_at: int) -> JobOutcome:
        """Return the outcome of the attempt with the events that are still to be reported.

        One that is not the job's end leaves them with the attempt, and raises: CancelledError when it was
        interrupted, TryAgain when it shall be tried again.
        """
        self._over = True
        last: list[EventData] = [ProcessError(error_message=note) for note in verdict.notes]
        events = await self._last_events([*last, end])
        if verdict.outcome is Outcome.INTERRUPTED or verdict.again:
            self._delivery.body.last_events = events
            raise TryAgain(verdict.error) if verdict.again else asyncio.CancelledError
        result = JobResult(
            success=verdict.outcome is Outcome.SUCCESS,
            outcome=verdict.outcome,
            exit_code=verdict.exit_code,
            error_message=verdict.error,
            started_at=started_at,
            completed_at=self._clock.now(),
            output_json=verdict.output_json,
            final_sequence=self._batcher.next_sequence - 1,
            output_sha256=self._batcher.output_sha256,
        )
        return JobOutcome(result=result, events=events)

    def _opened(self) -> Publisher:
        if self._publisher is None:
            publisher = self._publisher = self._open_publisher()
            publisher.lost.add_done_callback(self._tell_lost)
            if self._start:
                publisher.add(self._start)
        return self._publisher

    def _tell_lost(self, lost: asyncio.Future[None]) -> None:
        if self._on_lost and not lost.cancelled():
            self._on_lost()

    def _publish(self, lines: list[bytes], is_stderr: bool) -> Awaitable[None] | None:
        if not lines:
            return None
        return self._opened().add_output(lines, StreamType.STDERR if is_stderr else StreamType.STDOUT)

    async def _last_events(self, last: list[EventData]) -> list[Event]:
        """Return the events that are still to be reported, the last ones at their end."""
        if self._publisher is None and not self._redactor:
            return self._all_events(last)
        finishing = asyncio.create_task(self._finish(last))
        return await through_one_cancellation(
            finishing, lambda: finishing.cancel() if self._delivery.lost else None
        )

    def _all_events(self, last: list[EventData]) -> list[Event]:
        """Return the events of an attempt that has published none."""
        now, notes = self._clock.now(), BatchMetrics(self._delivery.body.job)
        flushes = self._batcher.add(self._start, self._start.started_at) if self._start else []
        for data in last:
            flushes += self._batcher.add(data, now)
        for flush in flushes:
            notes.flushed(flush, now)
        return [event for flush in flushes for event in flush.events]

    async def _finish(self, last: list[EventData]) -> list[Event]:
        """Publish what the redactor held back, now that nothing follows, and then the last events."""
        for is_stderr in (False, True):
            held = self._redactor.flush(is_stderr) if self._redactor else []
            room = self._publish(held, is_stderr)
            if room is not None:
                await room
        return await self._opened().finish(last)


async def through_one_cancellation(work: asyncio.Future[T], on_cancel: Callable[[], object]) -> T:
    """Wait for work that shall end in its own way when this is cancelled; a second time cancels it too."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            on_cancel()
        return await work
