"""What an attempt reports to the server: its events while it runs, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from airunner.domain.event import EventData, ProcessEnd, ProcessError, ProcessStart, StreamType
from airunner.domain.job import JobResult, Outcome
from airunner.queues.base import TryAgain
from airunner.worker.attempt import Attempt, JobOutcome

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.domain.event import Event
    from airunner.queues.base import Delivery
    from airunner.worker.publishing.publisher import Publisher
    from airunner.worker.secrets.redaction import LineRedactor

T = TypeVar("T")

_ERROR_TEXT_LENGTH: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How an attempt ended, before it is known what of it is still to be published."""

    outcome: Outcome
    exit_code: int
    error: str = ""
    notes: tuple[str, ...] = ()
    """The texts of PROCESS_ERROR events."""
    output_json: str = ""
    again: bool = False
    """Whether the job is to be tried again instead of ending here."""
    delay_seconds: float | None = None
    """How long it waits then, where that is not the worker's to say."""


class AttemptReport:
    """Reports the events of an attempt without its secrets, and then its end."""

    def __init__(
        self,
        delivery: Delivery[Attempt],
        publisher: Publisher,
        clock: Clock,
        *,
        redactor: LineRedactor | None = None,
    ) -> None:
        self._delivery = delivery
        self._publisher = publisher
        self._clock = clock
        self._redactor = redactor
        self._on_lost: Callable[[], object] | None = None
        publisher.lost.add_done_callback(self._lost)

    def begin(
        self, pid: int, started_at: int, on_lost: Callable[[], object], *, timestamp: int | None = None
    ) -> None:
        """Report that a process or handler of the attempt runs: from here on the attempt costs a try.

        `on_lost` is called when nothing of the attempt will be accepted any more, or publishing broke down.
        The event's timestamp is now, unless another is given.
        """
        self._delivery.body.begun = True
        self._on_lost = on_lost
        worker_id = self._delivery.body.job.life.worker_id
        start = ProcessStart(pid=pid, started_at=started_at, worker_id=worker_id)
        self._publisher.add(start, timestamp)

    def add(self, data: EventData) -> None:
        """Report an event that is not output."""
        self._publisher.add(data)

    def output(self, lines: list[bytes], is_stderr: bool) -> Awaitable[None] | None:
        """Report output; with too much waiting for the server, return what to await before more."""
        if self._redactor:
            lines = self._redactor.feed(lines, is_stderr)
        return self._add_output(lines, is_stderr)

    def lost_output(self, lines: int, reason: str) -> None:
        """Report that lines of output are lost, as a Gap in their place."""
        self._publisher.add_gap(lines, reason)

    def redacted(self, text: str) -> str:
        """Return a text without secrets."""
        return self._redactor.text(text) if self._redactor else text

    def raise_if_lost(self) -> None:
        """Raise the error that publishing ended with, if it ended."""
        self._publisher.raise_if_lost()

    async def refuse(self, reason: str, exit_code: int, started_at: int) -> JobOutcome:
        """End an attempt that cannot start."""
        text = self.redacted(reason)[:_ERROR_TEXT_LENGTH]
        end = AttemptEnd(outcome=Outcome.FAILURE, exit_code=exit_code, error=text, notes=(text,))
        process_end = ProcessEnd(pid=0, exit_code=exit_code, run_duration_ms=0)
        return await self.conclude(end, process_end, started_at)

    async def conclude(self, end: AttemptEnd, process_end: ProcessEnd, started_at: int) -> JobOutcome:
        """Return the outcome of the attempt with the events that are still to be reported.

        One that is not the job's end leaves them with the attempt, and raises: CancelledError when it was
        interrupted, TryAgain when the job is to be tried again. What it says of the end is without secrets.
        """
        notes = [ProcessError(error_message=self.redacted(note)) for note in end.notes]
        error = self.redacted(end.error)
        events = await self._last_events([*notes, process_end])
        if end.outcome is Outcome.INTERRUPTED or end.again:
            self._delivery.body.last_events = events
            if end.again:
                raise TryAgain(error, delay_seconds=end.delay_seconds)
            raise asyncio.CancelledError
        result = JobResult(
            success=end.outcome is Outcome.SUCCESS,
            outcome=end.outcome,
            exit_code=end.exit_code,
            error_message=error,
            started_at=started_at,
            completed_at=self._clock.now(),
            output_json=end.output_json,
            final_sequence=self._publisher.last_sequence,
            output_sha256=self._publisher.output_sha256,
        )
        return JobOutcome(result=result, events=events)

    async def close(self) -> None:
        """Publish nothing more."""
        await self._publisher.abandon()

    def _lost(self, lost: asyncio.Future[None]) -> None:
        if self._on_lost and not lost.cancelled():
            self._on_lost()

    def _add_output(self, lines: list[bytes], is_stderr: bool) -> Awaitable[None] | None:
        if not lines:
            return None
        return self._publisher.add_output(lines, StreamType.STDERR if is_stderr else StreamType.STDOUT)

    async def _last_events(self, last: list[EventData]) -> list[Event]:
        """Return the events that are still to be reported, the last ones at their end."""
        if self._redactor is None and self._publisher.idle:
            # Nothing to wait for, so nothing that a cancellation could interrupt.
            return await self._publisher.finish(last)
        finishing = asyncio.create_task(self._finish(last))
        return await through_one_cancellation(
            finishing, lambda: finishing.cancel() if self._delivery.lost else None
        )

    async def _finish(self, last: list[EventData]) -> list[Event]:
        """Publish what the redactor held back, now that nothing follows, and then the last events."""
        for is_stderr in (False, True):
            held = self._redactor.flush(is_stderr) if self._redactor else []
            room = self._add_output(held, is_stderr)
            if room is not None:
                await room
        return await self._publisher.finish(last)


async def through_one_cancellation(work: asyncio.Future[T], on_cancel: Callable[[], object]) -> T:
    """Wait for work that ends in its own way when this is cancelled; a second cancellation cancels it too."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            on_cancel()
        return await work
