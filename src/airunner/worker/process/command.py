"""One attempt at a command: its process, its events, its result."""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airunner.domain.event import ProcessEnd
from airunner.domain.job import Outcome
from airunner.worker.process.process import CouldNotStart, Process, ProcessExit, ProcessSpec, Stop
from airunner.worker.publishing.report import AttemptEnd, through_one_cancellation

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.queues.base import Delivery
    from airunner.worker.attempt import Attempt, JobOutcome
    from airunner.worker.publishing.report import AttemptReport

_NOT_EXECUTABLE: Final = 126
_NOT_FOUND: Final = 127


class CommandAttempt:
    """Sees one process through, from its start to the outcome of its attempt.

    A cancelled delivery stops the process, and the outcome says so. Cancelling `handle` interrupts it: the
    process gets its grace period, the last events are left with the attempt, and the cancellation goes on;
    unless the process was over by then: its own end stands. If the delivery was lost, or on a second
    cancellation, the process is killed at once and nothing is kept.
    """

    def __init__(self, delivery: Delivery[Attempt], report: AttemptReport, clock: Clock) -> None:
        self._delivery = delivery
        self._report = report
        self._clock = clock
        self._interrupted = False

    async def handle(self, spec: ProcessSpec) -> JobOutcome:
        """Run the command."""
        started_at = self._clock.now()
        try:
            process = await Process.start(spec, on_output=self._report.output, clock=self._clock)
        except CouldNotStart as error:
            return await self._report.refuse(str(error), could_not_start_code(spec), started_at)
        ended = asyncio.create_task(process.wait())
        # The publisher may learn first that the attempt is lost, while the process is silent.
        self._report.begin(process.pid, process.started_at, on_lost=ended.cancel)
        self._report.open()
        seen = await self._see_through(process, ended)
        end = ProcessEnd(pid=process.pid, exit_code=seen.exit_code, run_duration_ms=seen.duration_ms)
        return await self._report.conclude(self._verdict(seen, spec), end, process.started_at)

    async def _see_through(self, process: Process, ended: asyncio.Task[ProcessExit]) -> ProcessExit:
        self._delivery.cancelled.when_set(lambda: process.stop(Stop.CANCELLED))
        try:
            return await through_one_cancellation(ended, lambda: self._interrupt(process, ended))
        except asyncio.CancelledError:
            self._report.raise_if_lost()
            raise

    def _interrupt(self, process: Process, ended: asyncio.Task[ProcessExit]) -> None:
        if self._delivery.lost:
            process.stop(Stop.LOST)
            ended.cancel()
            return
        self._interrupted = not self._delivery.cancelled.is_set()
        process.stop(Stop.CANCELLED)

    def _verdict(self, ended: ProcessExit, spec: ProcessSpec) -> AttemptEnd:
        outcome, error = self._explain(ended, spec)
        notes: tuple[str, ...] = () if ended.stopped is None else (error,)
        if not ended.output_complete:
            notes += ("a process that was left behind kept the output open; what it wrote later is missing",)
        return AttemptEnd(outcome=outcome, exit_code=ended.exit_code, error=error, notes=notes)

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


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
