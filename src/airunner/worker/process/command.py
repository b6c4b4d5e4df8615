"""The processes of one attempt: its command, and before that the checkout of its repository."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from airunner.domain.event import ProcessEnd, signal_name
from airunner.domain.job import Outcome
from airunner.domain.repository import parse_repository
from airunner.worker.process.checkout import checkout_spec
from airunner.worker.process.process import (
    CANNOT_START,
    CouldNotStart,
    Process,
    ProcessExit,
    ProcessSpec,
    Stop,
)
from airunner.worker.publishing.report import AttemptEnd, through_one_cancellation

if TYPE_CHECKING:
    from airunner.domain.clock import Clock
    from airunner.queues.base import Delivery
    from airunner.worker.attempt import Attempt, JobOutcome
    from airunner.worker.process.checkout import CheckoutRules
    from airunner.worker.publishing.report import AttemptReport


class CommandAttempt:
    """Runs the processes of one attempt, one after the other, to the attempt's outcome.

    A job with a repository has two: git, and then its command in the checkout; without a command the checkout
    is the job. Each has its PROCESS_START; the attempt ends with the last of them, or with a checkout that
    failed. The job's time-out is for both together.

    A cancelled delivery stops the process, and the outcome says so. Cancelling `run` interrupts it: the
    process gets its grace period, the last events are left with the attempt, and the cancellation goes on;
    unless the process was over by then: its own end stands. If the delivery was lost, or on a second
    cancellation, the process is killed at once and nothing is kept.
    """

    def __init__(self, delivery: Delivery[Attempt], report: AttemptReport, clock: Clock) -> None:
        self._delivery = delivery
        self._report = report
        self._clock = clock
        self._interrupted = False

    async def run(self, command: ProcessSpec, rules: CheckoutRules) -> JobOutcome:
        """Run the command; with a repository, check that out into the command's folder before."""
        began_at = self._clock.now()
        try:
            if self._delivery.body.job.params.repository_url:
                return await self._run_in_checkout(command, rules, began_at)
            ended = await self._run(command)
        except CouldNotStart as error:
            return await self._report.refuse(str(error), error.exit_code, began_at)
        return await self._conclude(ended, command, ended.started_at)

    async def _run_in_checkout(self, command: ProcessSpec, rules: CheckoutRules, began_at: int) -> JobOutcome:
        params = self._delivery.body.job.params
        began = self._clock.monotonic()
        ended = await self._run(checkout_spec(params, command, rules))
        if params.command:
            ended = self._stopped_if_cancelled(ended)
        if not params.command or not ended.succeeded:
            purpose = f"cannot check out {parse_repository(params.repository_url).url}"
            return await self._conclude(ended, command, began_at, purpose)
        folder = _inside(command.working_directory or "", params.working_directory)
        if folder is None:
            reason = f"the working directory {params.working_directory} is not in the checkout"
            return await self._report.refuse(reason, CANNOT_START, began_at)
        seconds = time_left(command, self._clock.monotonic() - began)
        ended = await self._run(replace(command, working_directory=folder, timeout_seconds=seconds))
        return await self._conclude(ended, command, began_at)

    async def _run(self, spec: ProcessSpec) -> _EndedProcess:
        """Run one process to its end; raise CouldNotStart if it cannot start."""
        process = await Process.start(spec, on_output=self._report.output, clock=self._clock)
        waiting = asyncio.create_task(process.wait())
        try:
            # The publisher may learn first that the attempt is lost, while the process is silent.
            self._report.begin(process.pid, process.started_at, on_lost=waiting.cancel)
        except BaseException:  # the attempt was lost while this process started
            process.stop(Stop.LOST)
            raise
        exited = await self._wait(process, waiting)
        return _EndedProcess(pid=process.pid, started_at=process.started_at, exited=exited)

    async def _wait(self, process: Process, waiting: asyncio.Task[ProcessExit]) -> ProcessExit:
        self._delivery.cancelled.when_set(lambda: process.stop(Stop.CANCELLED))
        try:
            return await through_one_cancellation(waiting, lambda: self._interrupt(process, waiting))
        except asyncio.CancelledError:
            self._report.raise_if_lost()
            raise

    def _interrupt(self, process: Process, waiting: asyncio.Task[ProcessExit]) -> None:
        if self._delivery.lost:
            process.stop(Stop.LOST)
            waiting.cancel()
            return
        self._interrupted = not self._delivery.cancelled.is_set()
        process.stop(Stop.CANCELLED)

    def _stopped_if_cancelled(self, ended: _EndedProcess) -> _EndedProcess:
        """Return the end of a checkout as stopped, if we were cancelled when git was just over."""
        task = asyncio.current_task()
        if not task or not task.cancelling() or not ended.succeeded:
            return ended
        self._interrupted = not self._delivery.cancelled.is_set()
        return replace(ended, exited=replace(ended.exited, stopped=Stop.CANCELLED))

    async def _conclude(
        self, ended: _EndedProcess, command: ProcessSpec, started_at: int, purpose: str = ""
    ) -> JobOutcome:
        exited = ended.exited
        end = self._attempt_end(exited, command)
        if purpose and end.error:
            error = f"{purpose}: {end.error}"
            other_notes = (note for note in end.notes if note != end.error)
            end = replace(end, error=error, notes=(error, *other_notes))
        process_end = ProcessEnd(
            pid=ended.pid, exit_code=exited.exit_code, run_duration_ms=exited.duration_ms
        )
        return await self._report.conclude(end, process_end, started_at)

    def _attempt_end(self, exited: ProcessExit, command: ProcessSpec) -> AttemptEnd:
        outcome, error = self._outcome(exited, command)
        notes: tuple[str, ...] = () if exited.stopped is None else (error,)
        if not exited.output_complete:
            notes += ("a process that was left behind kept the output open; what it wrote later is missing",)
        if exited.left_running:
            notes += ("the process could not be killed, and may be running still",)
        return AttemptEnd(outcome=outcome, exit_code=exited.exit_code, error=error, notes=notes)

    def _outcome(self, exited: ProcessExit, command: ProcessSpec) -> tuple[Outcome, str]:
        if exited.stopped is Stop.TIMEOUT:
            return Outcome.TIMEOUT, f"timed out after {command.timeout_seconds:g} s"
        if exited.stopped is Stop.CANCELLED and self._interrupted:
            return Outcome.INTERRUPTED, "interrupted: the worker is shutting down"
        if exited.stopped is not None:
            return Outcome.CANCELLED, "cancelled"
        if exited.signal is not None:
            return Outcome.FAILURE, f"killed by {signal_name(exited.signal)}"
        if exited.exit_code != 0:
            return Outcome.FAILURE, f"exited with code {exited.exit_code}"
        return Outcome.SUCCESS, ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _EndedProcess:
    """A process of the attempt that has ended."""

    pid: int
    started_at: int
    exited: ProcessExit

    @property
    def succeeded(self) -> bool:
        """Whether it exited by itself, and with 0."""
        return self.exited.exit_code == 0 and self.exited.stopped is None


def time_left(command: ProcessSpec, spent_ms: int) -> float | None:
    """Return the seconds of its time-out that remain for a command; None if it has none."""
    whole = command.timeout_seconds
    return None if whole is None else max(0.0, whole - spent_ms / 1000)


def _inside(checkout: str, relative: str) -> str | None:
    """Return a folder of the checkout; None if a symbolic link leads out of it."""
    top = Path(checkout).resolve()
    folder = (top / relative).resolve()
    return str(folder) if folder.is_relative_to(top) else None
