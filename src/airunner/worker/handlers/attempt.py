"""One attempt at a Python handler: its output, its result, its errors."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final

from airunner.domain.errors import VisibilityLost, permanent_failure
from airunner.domain.event import ProcessEnd
from airunner.domain.job import Outcome
from airunner.queues.base import TryAgain
from airunner.telemetry.logs import get_logger
from airunner.worker.handlers.failures import details_of, summary_of
from airunner.worker.process.process import Stop
from airunner.worker.publishing.report import AttemptEnd

if TYPE_CHECKING:
    from airunner.domain.clock import Clock, Timer
    from airunner.queues.base import Delivery
    from airunner.worker.attempt import Attempt, AttemptCall, JobOutcome
    from airunner.worker.publishing.report import AttemptReport

_log = get_logger("airunner.worker")

_FAILED: Final = 1
# What a handler that timed out, or lost its job, has to end; its attempt is over then in any case.
_LAST_LINES_SECONDS: Final = 1.0
_NOTE_LENGTH: Final = 16_000
_ERROR_LENGTH: Final = 4_000


class HandlerAttempt:
    """Waits for one call of a handler, and turns its end into the outcome of its attempt.

    A handler that is stopped (its job cancelled, timed out or lost, or the worker shutting down) has the
    outcome of that, whatever it returns. It may take a second to end after its time-out, and `grace_seconds`
    when it was cancelled; the attempt of one that goes on regardless ends without it, and nothing that it
    prints or returns from then on is seen. A permanent error ends the job (`permanent_failure` tells which),
    any other one gives it back to be tried again.
    """

    def __init__(
        self, delivery: Delivery[Attempt], report: AttemptReport, clock: Clock, *, grace_seconds: float
    ) -> None:
        self._delivery = delivery
        self._report = report
        self._clock = clock
        at_once = min(_LAST_LINES_SECONDS, grace_seconds)
        self._patience = {Stop.TIMEOUT: at_once, Stop.CANCELLED: grace_seconds, Stop.LOST: at_once}
        self._stopped: Stop | None = None
        self._interrupted = False
        self._given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._timers: list[Timer] = []

    async def run(self, call: AttemptCall) -> JobOutcome:
        """Take over a call that was begun, and may be over."""
        started_at = self._delivery.body.started_at
        self._report.begin(
            os.getpid(),
            started_at,
            on_lost=lambda: self._stop(call, Stop.LOST),
            # All of one that is over is reported together; of one that runs, people see that from now on.
            timestamp=started_at if call.settled else None,
        )
        call.output.attach(self._report)
        try:
            end = await self._wait(call, self._delivery.body.job.params.timeout_seconds)
            await call.output.close()
        finally:
            call.output.silence()
        duration_ms = max(0, self._clock.now() - started_at)
        process_end = ProcessEnd(pid=os.getpid(), exit_code=end.exit_code, run_duration_ms=duration_ms)
        return await self._report.conclude(end, process_end, started_at)

    async def _wait(self, call: AttemptCall, timeout_seconds: int) -> AttemptEnd:
        if timeout_seconds:
            due_at = self._delivery.body.started_at + timeout_seconds * 1000
            self._timers.append(self._clock.call_at(due_at, lambda: self._stop(call, Stop.TIMEOUT)))
        self._delivery.cancelled.when_set(lambda: self._stop(call, Stop.CANCELLED))
        try:
            result = await self._result(call)
        except Exception as error:  # noqa: BLE001  the handler's own; what it means is decided below
            return self._attempt_end("", error, timeout_seconds)
        finally:
            for timer in self._timers:
                timer.cancel()
        return self._attempt_end(result, None, timeout_seconds)

    async def _result(self, call: AttemptCall) -> str:
        """Return the result, empty if the handler was given up; a first cancellation stops the handler."""
        try:
            await self._end_of(call)
        except asyncio.CancelledError:
            self._interrupt(call)
            await self._end_of(call)
        if call.settled:
            return await call.done()
        # Nobody waits for its end any more, be it an error.
        call.done().cancel()
        return ""

    async def _end_of(self, call: AttemptCall) -> None:
        either: set[asyncio.Future[Any]] = {call.done(), self._given_up}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    def _interrupt(self, call: AttemptCall) -> None:
        self._interrupted = not self._delivery.cancelled.is_set()
        self._stop(call, Stop.LOST if self._delivery.lost else Stop.CANCELLED)

    def _stop(self, call: AttemptCall, reason: Stop) -> None:
        """Ask the handler to end, and give it up when its time is over; a later reason may shorten that."""
        if call.settled:
            return
        self._stopped = self._stopped or reason
        call.stop()
        give_up_at = self._clock.now() + round(1000 * self._patience[reason])
        self._timers.append(self._clock.call_at(give_up_at, lambda: self._give_up(call)))

    def _give_up(self, call: AttemptCall) -> None:
        if call.settled or self._given_up.done():
            return
        self._given_up.set_result(None)
        call.kill()
        job = self._delivery.body.job
        _log.warning("handler.overdue", job_id=job.job_id, attempt=job.attempt, handler=job.params.handler)

    def _attempt_end(self, result: str, error: Exception | None, timeout_seconds: int) -> AttemptEnd:
        if self._stopped is Stop.LOST:
            self._report.raise_if_lost()
            raise VisibilityLost
        if self._stopped is not None:
            return self._stopped_end(timeout_seconds)
        if error is None:
            return AttemptEnd(outcome=Outcome.SUCCESS, exit_code=0, output_json=result)
        delay_seconds = error.delay_seconds if isinstance(error, TryAgain) else None
        if isinstance(error, TryAgain) and isinstance(error.__cause__, Exception):
            error = error.__cause__
        failure = permanent_failure(error)
        error = failure or error
        text = self._report.redacted(summary_of(error))[:_ERROR_LENGTH]
        note = self._report.redacted(details_of(error))[-_NOTE_LENGTH:]
        return AttemptEnd(
            outcome=Outcome.FAILURE,
            exit_code=_FAILED,
            error=text,
            notes=(note,),
            # After the last try the end is reported with its proof, which giving back does not carry.
            again=failure is None and self._delivery.body.job.life.tries_left > 0,
            delay_seconds=delay_seconds,
        )

    def _stopped_end(self, timeout_seconds: int) -> AttemptEnd:
        if self._stopped is Stop.TIMEOUT:
            outcome, text = Outcome.TIMEOUT, f"timed out after {timeout_seconds} s"
        elif self._interrupted:
            outcome, text = Outcome.INTERRUPTED, "interrupted: the worker is shutting down"
        else:
            outcome, text = Outcome.CANCELLED, "cancelled"
        return AttemptEnd(outcome=outcome, exit_code=_FAILED, error=text, notes=(text,))
