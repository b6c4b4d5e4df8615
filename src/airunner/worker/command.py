"""One attempt at a command: its process, its events, its result."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from airunner.domain.event import EventData, ProcessEnd, ProcessError, ProcessStart, StreamType
from airunner.domain.job import JobResult, Outcome
from airunner.worker.attempt import Attempt, JobOutcome
from airunner.worker.process import CouldNotStart, Process, ProcessExit, ProcessSpec, Stop

if TYPE_CHECKING:
    from airunner.domain.batching import Batcher
    from airunner.domain.clock import Clock
    from airunner.domain.event import Event
    from airunner.queues.base import Delivery
    from airunner.worker.publisher import Publisher
    from airunner.worker.redaction import LineRedactor

T = TypeVar("T")

_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127
_ERROR_TEXT_LENGTH: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """How an attempt ended, in the words of its result."""

    outcome: Outcome
    exit_code: int
    error: str = ""
    notes: tuple[str, ...] = ()
    """What becomes PROCESS_ERROR events."""


class CommandAttempt:
    """Sees one process through, from its start to the outcome of its attempt.

    A cancelled delivery stops the process, and the outcome says so. Cancelling `handle` interrupts it: the
    process gets its grace period, the last events are left with the attempt, and the cancellation goes on;
    unless the process was over by then: its own end stands. If the delivery was lost, or on a second
    cancellation, the process is killed at once and nothing is kept.
    """

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
        self._interrupted = False

    async def handle(self, spec: ProcessSpec) -> JobOutcome:
        """Run the command."""
        started_at = self._clock.now()
        try:
            process = await Process.start(spec, on_output=self._on_output, clock=self._clock)
        except CouldNotStart as error:
            return await self.refuse(str(error), could_not_start_code(spec), started_at)
        self._delivery.body.begun = True
        self._publisher.add(ProcessStart(pid=process.pid, started_at=process.started_at))
        ended = await self._see_through(process)
        end = ProcessEnd(pid=process.pid, exit_code=ended.exit_code, run_duration_ms=ended.duration_ms)
        return await self._conclude(self._verdict(ended, spec), end, process.started_at)

    async def refuse(self, reason: str, exit_code: int, started_at: int) -> JobOutcome:
        """End an attempt that cannot begin."""
        shown = self._redactor.text(reason) if self._redactor else reason
        text = shown[:_ERROR_TEXT_LENGTH]
        verdict = _Verdict(outcome=Outcome.FAILURE, exit_code=exit_code, error=text, notes=(text,))
        return await self._conclude(
            verdict, ProcessEnd(pid=0, exit_code=exit_code, run_duration_ms=0), started_at
        )

    def _on_output(self, lines: list[bytes], is_stderr: bool) -> Awaitable[None] | None:
        if self._redactor:
            lines = self._redactor.feed(lines, is_stderr)
        return self._publish(lines, is_stderr)

    def _publish(self, lines: list[bytes], is_stderr: bool) -> Awaitable[None] | None:
        if not lines:
            return None
        return self._publisher.add_output(lines, StreamType.STDERR if is_stderr else StreamType.STDOUT)

    async def _see_through(self, process: Process) -> ProcessExit:
        ended = asyncio.create_task(process.wait())
        stop = asyncio.create_task(self._stop_when_told(process))
        # The publisher may learn first that the attempt is lost, while the process is silent.
        self._publisher.lost.add_done_callback(lambda lost: None if lost.cancelled() else ended.cancel())
        try:
            return await _through_one_cancellation(ended, lambda: self._interrupt(process, ended))
        except asyncio.CancelledError:
            if self._publisher.lost.done():
                self._publisher.lost.result()
            raise
        finally:
            stop.cancel()

    async def _stop_when_told(self, process: Process) -> None:
        await self._delivery.cancelled.wait()
        process.stop(Stop.CANCELLED)

    def _interrupt(self, process: Process, ended: asyncio.Task[ProcessExit]) -> None:
        if self._delivery.lost:
            process.stop(Stop.LOST)
            ended.cancel()
            return
        self._interrupted = not self._delivery.cancelled.is_set()
        process.stop(Stop.CANCELLED)

    async def _conclude(self, verdict: _Verdict, end: ProcessEnd, started_at: int) -> JobOutcome:
        notes: list[EventData] = [ProcessError(error_message=note) for note in verdict.notes]
        finishing = asyncio.create_task(self._finish([*notes, end]))
        events = await _through_one_cancellation(
            finishing, lambda: finishing.cancel() if self._delivery.lost else None
        )
        if verdict.outcome is Outcome.INTERRUPTED:
            self._delivery.body.last_events = events
            raise asyncio.CancelledError
        result = JobResult(
            success=verdict.outcome is Outcome.SUCCESS,
            outcome=verdict.outcome,
            exit_code=verdict.exit_code,
            error_message=verdict.error,
            started_at=started_at,
            completed_at=self._clock.now(),
            final_sequence=self._batcher.next_sequence - 1,
            output_sha256=self._batcher.output_sha256,
        )
        return JobOutcome(result=result, events=events)

    async def _finish(self, last: list[EventData]) -> list[Event]:
        """Publish what the redactor held back, now that nothing follows, and then the last events."""
        for is_stderr in (False, True):
            held = self._redactor.flush(is_stderr) if self._redactor else []
            room = self._publish(held, is_stderr)
            if room is not None:
                await room
        return await self._publisher.finish(last)

    def _verdict(self, ended: ProcessExit, spec: ProcessSpec) -> _Verdict:
        outcome, error = self._explain(ended, spec)
        notes: tuple[str, ...] = () if ended.stopped is None else (error,)
        if not ended.output_complete:
            notes += ("a process that was left behind kept the output open; what it wrote later is missing",)
        return _Verdict(outcome=outcome, exit_code=ended.exit_code, error=error, notes=notes)

    def _explain(self, ended: ProcessExit, spec: ProcessSpec) -> tuple[Outcome, str]:
        if ended.stopped is Stop.TIMEOUT:
            return Outcome.TIMEOUT, f"timed out after {spec.timeout_seconds:g} s"
        if ended.stopped is Stop.CANCELLED and self._interrupted:
            return Outcome.INTERRUPTED, "interrupted: the worker is shutting down"
        if ended.stopped is not None:
            return Outcome.CANCELLED, "cancelled"
        if ended.signal is not None:
            return Outcome.FAILURE, f"killed by {_signal_name(ended.signal)}"
        if ended.exit_code != 0:
            return Outcome.FAILURE, f"exited with code {ended.exit_code}"
        return Outcome.SUCCESS, ""


def could_not_start_code(spec: ProcessSpec) -> int:
    """Return the exit code that a shell would give: 127 if there is no such command, else 126."""
    if "/" in spec.command:
        found = Path(spec.working_directory or "", spec.command).exists()
    else:
        found = shutil.which(spec.command, mode=0, path=spec.environment.get("PATH", "")) is not None
    return _NOT_EXECUTABLE if found else _NOT_FOUND


async def _through_one_cancellation(work: asyncio.Task[T], on_cancel: Callable[[], object]) -> T:
    """Wait for work that shall end in its own way when this is cancelled; a second time cancels it too."""
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        if not work.done():
            on_cancel()
        return await work


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
