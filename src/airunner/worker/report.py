"""What every attempt tells the server: its output on the way, and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from airunner.domain.event import EventData, ProcessEnd, ProcessError, ProcessStart, StreamType
from airunner.domain.job import JobResult, Outcome
from airunner.worker.attempt import Attempt, JobOutcome

if TYPE_CHECKING:
    from airunner.domain.batching import Batcher
    from airunner.domain.clock import Clock
    from airunner.domain.event import Event
    from airunner.queues.base import Delivery
    from airunner.worker.publisher import Publisher
    from airunner.worker.redaction import LineRedactor

T = TypeVar("T")

_ERROR_TEXT_LENGTH: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How an attempt ended, in the words of its result."""

    outcome: Outcome
    exit_code: int
    error: str = ""
    notes: tuple[str, ...] = ()
    """What becomes PROCESS_ERROR events."""
    output_json: str = ""
    again: bool = False
    """Whether the job is to be tried again instead of ending here."""


class TryAgain(Exception):
    """The attempt failed in a way that another may not; its text is fit for everybody's eyes."""


class AttemptReport:
    """Publishes what an attempt says, without its secrets, and closes it with a verdict."""

    def __init__(
        self,
        delivery: Delivery[Attempt],
        *,
        publisher: Publisher,
        batcher: Batcher,
        clock: Clock,
        redactor: LineRedactor | None = None,
    ) -> None:
        self._delivery = delivery
        self._publisher = publisher
        self._batcher = batcher
        self._clock = clock
        self._redactor = redactor

    @property
    def lost(self) -> asyncio.Future[None]:
        """Done when nothing of this attempt will be accepted any more, or publishing broke down."""
        return self._publisher.lost

    def begin(self, pid: int, started_at: int) -> None:
        """Say that the attempt has begun: from here on it costs a try."""
        self._delivery.body.begun = True
        self._publisher.add(ProcessStart(pid=pid, started_at=started_at))

    def add(self, data: EventData) -> None:
        """Take an event that is not output."""
        self._publisher.add(data)

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
        verdict = Verdict(outcome=Outcome.FAILURE, exit_code=exit_code, error=text, notes=(text,))
        return await self.conclude(
            verdict, ProcessEnd(pid=0, exit_code=exit_code, run_duration_ms=0), started_at
        )

    async def conclude(self, verdict: Verdict, end: ProcessEnd, started_at: int) -> JobOutcome:
        """Return the outcome of the attempt with the events that are still to be reported.

        One that is not the job's end leaves them with the attempt, and raises: CancelledError when it was
        interrupted, TryAgain when it shall be tried again.
        """
        notes: list[EventData] = [ProcessError(error_message=note) for note in verdict.notes]
        finishing = asyncio.create_task(self._finish([*notes, end]))
        events = await through_one_cancellation(
            finishing, lambda: finishing.cancel() if self._delivery.lost else None
        )
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

    def _publish(self, lines: list[bytes], is_stderr: bool) -> Awaitable[None] | None:
        if not lines:
            return None
        return self._publisher.add_output(lines, StreamType.STDERR if is_stderr else StreamType.STDOUT)

    async def _finish(self, last: list[EventData]) -> list[Event]:
        """Publish what the redactor held back, now that nothing follows, and then the last events."""
        for is_stderr in (False, True):
            held = self._redactor.flush(is_stderr) if self._redactor else []
            room = self._publish(held, is_stderr)
            if room is not None:
                await room
        return await self._publisher.finish(last)


async def through_one_cancellation(work: asyncio.Future[T], on_cancel: Callable[[], object]) -> T:
    """Wait for work that shall end in its own way when this is cancelled; a second time cancels it too."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            on_cancel()
        return await work
