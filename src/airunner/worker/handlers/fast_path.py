"""Small handler jobs, from a chunk of deliveries to their outcomes without a task for each."""

from __future__ import annotations

import hashlib
import logging
import os
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

from airunner import telemetry
from airunner.domain.event import Event, ProcessEnd, ProcessStart
from airunner.domain.job import JobResult, Outcome
from airunner.handlers.calls import HandlerCalls
from airunner.worker.attempt import JobOutcome
from airunner.worker.runner import log_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airunner.domain.clock import Clock
    from airunner.handlers.calls import HandlerCall
    from airunner.handlers.registry import Handler, Registry
    from airunner.queues.base import Delivery, Finish
    from airunner.worker.attempt import Attempt

_log = structlog.get_logger("airunner.worker")

_Story: TypeAlias = tuple[int, str, str]
"""When an attempt began, on which worker, and its result as JSON: small jobs mostly have it in common."""

_MOMENT_MS: Final = 100
_SHA256_OF_NOTHING: Final = hashlib.sha256().digest()


class HandlerFastPath:
    """Implements Sprint: begins handlers at once, and ends those that succeed in a moment and in silence.

    All that such an attempt tells goes with its completion. Any other one, which speaks, fails or lasts, is
    handed over to be handled as usual, its call already on the way.
    """

    def __init__(self, handlers: Registry, clock: Clock, *, threads: int) -> None:
        self._handlers = handlers
        self._clock = clock
        self._threads = threads
        self._pid = os.getpid()
        self._calls: HandlerCalls | None = None
        self._finish: Finish[Attempt, JobOutcome] = _nobody
        self._hand_over: Callable[[Delivery[Attempt]], None] = _nobody

    def begin(
        self,
        deliveries: Sequence[Delivery[Attempt]],
        finish: Finish[Attempt, JobOutcome],
        hand_over: Callable[[Delivery[Attempt]], None],
    ) -> Sequence[Delivery[Attempt]]:
        """Call the handlers of deliveries; return those that have none here."""
        self._finish, self._hand_over = finish, hand_over
        handlers = self._handlers
        found = [(delivery, handlers.get(delivery.body.job.params.handler)) for delivery in deliveries]
        wanted = [(delivery, handler) for delivery, handler in found if handler is not None]
        if wanted:
            calls = self._start(wanted)
            self._clock.call_at(self._clock.now() + _MOMENT_MS, lambda: self._hand_over_unsettled(calls))
        return [delivery for delivery, handler in found if handler is None]

    def close(self) -> None:
        """Begin no more handlers."""
        if self._calls:
            self._calls.close()

    def _start(self, wanted: Sequence[tuple[Delivery[Attempt], Handler]]) -> Sequence[HandlerCall]:
        if self._calls is None:
            self._calls = HandlerCalls(self._threads, over=self._over)
        calls = self._calls.begin(wanted, self._clock.now(), on_first_output=self._take_over)
        audible = _log.is_enabled_for(logging.INFO)
        for call in calls:
            attempt = call.delivery.body
            attempt.call, attempt.begun = call, True
            if audible:
                job = attempt.job
                _log.info("job.start", job_id=job.job_id, attempt=job.attempt, queue=job.queue)
        return calls

    def _hand_over_unsettled(self, calls: Sequence[HandlerCall]) -> None:
        for call in calls:
            if not call.settled:
                self._take_over(call)

    def _take_over(self, call: HandlerCall) -> None:
        if not call.taken_over:
            call.taken_over = True
            self._hand_over(call.delivery)

    def _over(self, calls: Sequence[HandlerCall]) -> None:
        quiet: dict[_Story, list[Delivery[Attempt]]] = {}
        for call in calls:
            if call.taken_over:
                continue
            if call.failed or not call.output.silent:
                self._take_over(call)
                continue
            call.taken_over = True
            story = (call.started_at, call.delivery.body.job.life.worker_id, call.result)
            quiet.setdefault(story, []).append(call.delivery)
        now = self._clock.now()
        for story, deliveries in quiet.items():
            self._end(deliveries, story, now)

    def _end(self, deliveries: Sequence[Delivery[Attempt]], story: _Story, now: int) -> None:
        """End attempts that have all that they tell in common."""
        outcome = self._outcome(story, now)
        took = outcome.result.completed_at - outcome.result.started_at
        telemetry.attempts_ended.add(len(deliveries), "success")
        telemetry.attempt_time.record(took / 1000, len(deliveries))
        if _log.is_enabled_for(logging.INFO):
            for delivery in deliveries:
                log_end(delivery.body.job, outcome.result)
        self._finish([(delivery, outcome) for delivery in deliveries])

    def _outcome(self, story: _Story, now: int) -> JobOutcome:
        """Return the outcome of an attempt that said nothing."""
        started_at, worker_id, output_json = story
        start = ProcessStart(pid=self._pid, started_at=started_at, worker_id=worker_id)
        end = ProcessEnd(
            pid=self._pid,
            exit_code=0,
            run_duration_ms=now - started_at,
            event_count=1,
            output_sha256=_SHA256_OF_NOTHING,
        )
        result = JobResult(
            success=True,
            outcome=Outcome.SUCCESS,
            exit_code=0,
            started_at=started_at,
            completed_at=now,
            output_json=output_json,
            final_sequence=2,
            output_sha256=_SHA256_OF_NOTHING,
        )
        events = (
            Event(sequence=1, timestamp=started_at, data=start),
            Event(sequence=2, timestamp=now, data=end),
        )
        return JobOutcome(result=result, events=events)


def _nobody(_: object) -> None:
    """Stands in for the consumer until it begins something."""
