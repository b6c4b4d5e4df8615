"""One attempt at a job with a repository: the checkout, and the command in it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airunner.domain.event import ProcessEnd
from airunner.domain.repository import parse_repository
from airunner.worker.attempt import JobOutcome
from airunner.worker.process.checkout import checkout_spec
from airunner.worker.process.command import CommandAttempt, could_not_start_code
from airunner.worker.process.process import CouldNotStart, Process, Stop

if TYPE_CHECKING:
    from airunner.worker.process.checkout import CheckoutRules
    from airunner.worker.process.process import ProcessExit, ProcessSpec

_CANNOT_BEGIN: Final = 126


class CheckoutAttempt(CommandAttempt):
    """Sees git through, and then the command, in the way of a CommandAttempt.

    Without a command the checkout is the job. Each of the two processes has its PROCESS_START; the attempt's
    end is that of the command, or of a checkout that failed. The job's time-out is for both together.
    """

    async def handle_in_checkout(self, command: ProcessSpec, rules: CheckoutRules) -> JobOutcome:
        """Check the repository out into the folder of `command`, and run that there."""
        params, began_at = self._delivery.body.job.params, self._clock.now()
        ran = await self._run(checkout_spec(params, command, rules))
        if isinstance(ran, JobOutcome):
            return ran
        process, seen = ran
        if params.command:
            seen = self._applying_cancellation(seen)
        if not params.command or not _succeeded(seen):
            purpose = f"cannot check out {parse_repository(params.repository_url).url}"
            return await self._end(process, seen, command, began_at, purpose)
        place = _inside(command.working_directory or "", params.working_directory)
        if place is None:
            reason = f"the working directory {params.working_directory} is not in the checkout"
            return await self._report.refuse(reason, _CANNOT_BEGIN, began_at)
        left = time_left(command, self._clock.now() - began_at)
        ran = await self._run(replace(command, working_directory=place, timeout_seconds=left))
        return ran if isinstance(ran, JobOutcome) else await self._end(*ran, command, began_at)

    async def _run(self, spec: ProcessSpec) -> tuple[Process, ProcessExit] | JobOutcome:
        """See one of the processes through; if it could not start, that is the outcome."""
        started_at = self._clock.now()
        try:
            process = await Process.start(spec, on_output=self._report.output, clock=self._clock)
        except CouldNotStart as error:
            return await self._report.refuse(str(error), could_not_start_code(spec), started_at)
        ended = asyncio.create_task(process.wait())
        try:
            self._report.begin(process.pid, process.started_at, on_lost=ended.cancel)
            self._report.open()
        except BaseException:  # the attempt was lost while this began
            process.stop(Stop.LOST)
            raise
        return process, await self._see_through(process, ended)

    def _applying_cancellation(self, seen: ProcessExit) -> ProcessExit:
        """Return an exit after which no command begins, if we were cancelled when git was just over."""
        task = asyncio.current_task()
        if not task or not task.cancelling() or not _succeeded(seen):
            return seen
        self._interrupted = not self._delivery.cancelled.is_set()
        return replace(seen, stopped=Stop.CANCELLED)

    async def _end(
        self, process: Process, seen: ProcessExit, command: ProcessSpec, began_at: int, purpose: str = ""
    ) -> JobOutcome:
        verdict = self._verdict(seen, command)
        if purpose and verdict.error:
            error = f"{purpose}: {verdict.error}"
            others = (note for note in verdict.notes if note != verdict.error)
            verdict = replace(verdict, error=error, notes=(error, *others))
        end = ProcessEnd(pid=process.pid, exit_code=seen.exit_code, run_duration_ms=seen.duration_ms)
        return await self._report.conclude(verdict, end, began_at)


def time_left(command: ProcessSpec, spent_ms: int) -> float | None:
    """Return the seconds of its time-out that remain for a command; None if it has none."""
    whole = command.timeout_seconds
    return None if whole is None else max(0.0, whole - spent_ms / 1000)


def _succeeded(seen: ProcessExit) -> bool:
    return seen.exit_code == 0 and seen.stopped is None


def _inside(checkout: str, relative: str) -> str | None:
    """Return a folder of the checkout; None if a symbolic link leads out of it."""
    top = Path(checkout).resolve()
    place = (top / relative).resolve()
    return str(place) if place.is_relative_to(top) else None
