"""Handler jobs from deliveries to outcomes, many at once, and without a task for those that are quick."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from airunner import telemetry
from airunner.handlers.calls import HandlerCall, HandlerCalls
from airunner.handlers.context import Context
from airunner.handlers.loop_callbacks import LoopCallbacks
from airunner.telemetry.logs import get_logger
from airunner.worker.attempt import JobOutcome, log_end, log_start
from airunner.worker.handlers.output import JobOutput
from airunner.worker.handlers.quick_reports import printed_outcome, silent_outcomes
from airunner.worker.publishing.batch_metrics import BatchMetrics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.batching import Flush
    from airunner.domain.clock import Clock
    from airunner.domain.job import Job
    from airunner.handlers.registry import Handler, Registry
    from airunner.queues.base import Delivery, Fail, Finish
    from airunner.queues.task_runner import TaskRunner
    from airunner.worker.attempt import Attempt, AttemptCall
    from airunner.worker.handlers.output import OutputLines
    from airunner.worker.handlers.processes import HandlerProcesses
    from airunner.worker.handlers.quick_reports import RedactorFor

_log = get_logger("airunner.worker")

_HAND_OVER_AFTER_MS: Final = 100
# Of a processor, while the loop stood still: less is no sign that a thread kept the interpreter to itself.
_LITTLE: Final = 0.02
# What has printed may be over in a moment, and then needs no task; nobody sees that its line came later.
_PRINTING_SECONDS: Final = 0.01
_PRINTED_BYTES: Final = 64 * 1024


class HandlerFastPath:
    """Implements Runner: calls handlers at once, and ends attempts that succeed quickly and print little.

    All that such an attempt has to report goes with its completion. Any other one, which fails or lasts, or
    goes on after it has printed, is handed over to a task, its call already under way; what has no handler
    here is a task's from the start.
    """

    def __init__(
        self,
        handlers: Registry,
        tasks: TaskRunner[Attempt, JobOutcome],
        clock: Clock,
        *,
        threads: int,
        processes: HandlerProcesses | None = None,
        redactor_for: RedactorFor | None = None,
    ) -> None:
        """`threads` sync handlers run at once, in `processes` where these are given; `close` closes them.

        Without `redactor_for` whatever prints is a task's.
        """
        self._handlers = handlers
        self._processes = processes
        self._tasks = tasks
        self._clock = clock
        self._threads = threads
        self._redactor_for = redactor_for
        self._printing: list[Delivery[Attempt]] = []
        self._output_room = threading.Condition()
        self._callbacks: LoopCallbacks | None = None
        self._calls: HandlerCalls[AttemptCall] | None = None
        self._overdue: set[AttemptCall] = set()
        self._processor_time = time.process_time()
        self._finish: Finish[Attempt, JobOutcome] = _ignore
        self._fail: Fail[Attempt] = _ignore

    @property
    def overdue(self) -> int:
        """How many handlers go on though their attempts are over; each still takes a slot."""
        return len(self._overdue)

    def begin(
        self,
        deliveries: Sequence[Delivery[Attempt]],
        finish: Finish[Attempt, JobOutcome],
        fail: Fail[Attempt],
    ) -> None:
        """Call the handlers of deliveries, and start a task for each of the others."""
        self._finish, self._fail = finish, fail
        names = [delivery.body.job.params.handler for delivery in deliveries]
        handlers = {name: self._handlers.get(name) for name in set(names)}
        found = [(delivery, handlers[name]) for delivery, name in zip(deliveries, names, strict=True)]
        with_handler = [(delivery, handler) for delivery, handler in found if handler is not None]
        if with_handler:
            calls = self._call(with_handler)
            due_at = self._clock.now() + _HAND_OVER_AFTER_MS
            self._clock.call_at(due_at, lambda: self._hand_over_unsettled(calls))
        if len(with_handler) < len(found):
            others = [delivery for delivery, handler in found if handler is None]
            self._tasks.begin(others, finish, fail)

    def cancel(self, delivery: Delivery[Attempt]) -> None:
        """Hand a delivery over to a task, which alone can stop its handler, and cancel that."""
        if delivery.body.call:
            self._hand_over(delivery)
        self._tasks.cancel(delivery)

    def suspects(self, seconds: float) -> list[str]:
        """Return the handlers that had most of the CPU time of the last seconds, with their jobs.

        Call it again and again: the CPU times are those since the last call.
        """
        before, self._processor_time = self._processor_time, time.process_time()
        # Of what this process had, and it may not have had much; but of next to nothing nobody had most.
        most = max((self._processor_time - before) / 2, _LITTLE * seconds)
        times = self._calls.processor_times() if self._calls else []
        jobs = [call.key.body.job for call, used in times if used > most]
        return [f"{job.params.handler} of job {job.job_id}" for job in jobs]

    def close(self) -> None:
        """Begin no more handlers."""
        if self._calls:
            self._calls.close()
        if self._processes:
            self._processes.close()

    def _call(self, wanted: Sequence[tuple[Delivery[Attempt], Handler]]) -> list[AttemptCall]:
        if self._calls is None or self._callbacks is None:
            self._callbacks = LoopCallbacks(asyncio.get_running_loop())
            self._calls = HandlerCalls(
                threads=self._threads,
                callbacks=self._callbacks,
                on_ended=self._on_ended,
                run_sync=self._processes.run if self._processes else None,
            )
        now, callbacks, begins_to_print = self._clock.now(), self._callbacks, self._begins_to_print
        calls = []
        for delivery, handler in wanted:
            output = JobOutput(callbacks, self._output_room, is_async=handler.is_async)
            output.on_first_output, output.owner = begins_to_print, delivery
            calls.append(_new_call(delivery, handler, output, now))
        self._calls.begin(calls)
        if _log.is_enabled_for(logging.INFO):
            for delivery, _ in wanted:
                log_start(delivery.body.job)
        return calls

    def _hand_over_unsettled(self, calls: Sequence[AttemptCall]) -> None:
        for call in calls:
            if not call.settled:
                self._hand_over(call.key)

    def _begins_to_print(self, delivery: Delivery[Attempt]) -> None:
        """Hand a delivery over soon, unless it is over by then."""
        self._printing.append(delivery)
        if len(self._printing) == 1:
            asyncio.get_running_loop().call_later(_PRINTING_SECONDS, self._hand_over_printing)

    def _hand_over_printing(self) -> None:
        printing, self._printing = self._printing, []
        self._hand_over_unsettled([delivery.body.call for delivery in printing if delivery.body.call])

    def _hand_over(self, delivery: Delivery[Attempt]) -> None:
        if not delivery.body.passed_on:
            delivery.body.passed_on = True
            self._tasks.begin((delivery,), self._finish_task, self._fail_task)

    def _finish_task(self, results: Sequence[tuple[Delivery[Attempt], JobOutcome]]) -> None:
        for delivery, _ in results:
            self._note_overdue(delivery)
        self._finish(results)

    def _fail_task(self, delivery: Delivery[Attempt], error: BaseException) -> None:
        self._note_overdue(delivery)
        self._fail(delivery, error)

    def _note_overdue(self, delivery: Delivery[Attempt]) -> None:
        # Before the consumer hears of the end: the slot is not free for a moment.
        if delivery.body.call and not delivery.body.call.settled:
            self._overdue.add(delivery.body.call)

    def _on_ended(self, calls: Sequence[AttemptCall]) -> None:
        self._overdue.difference_update(calls)
        silent: dict[tuple[int, str], list[AttemptCall]] = {}
        loud: list[tuple[AttemptCall, Sequence[OutputLines]]] = []
        for call in calls:
            delivery = call.key
            attempt = delivery.body
            if attempt.passed_on:
                continue
            printed = self._printed(call)
            if call.failed or printed is None:
                self._hand_over(delivery)
                continue
            attempt.passed_on = True
            if printed:
                loud.append((call, printed))
            else:
                silent.setdefault((attempt.started_at, attempt.job.life.worker_id), []).append(call)
        now = self._clock.now()
        for (started_at, worker_id), alike in silent.items():
            outcomes = silent_outcomes(started_at, worker_id, now, [call.result for call in alike])
            self._succeed(list(zip((call.key for call in alike), outcomes, strict=True)))
        if loud:
            self._succeed_loudly(loud, now)

    def _printed(self, call: AttemptCall) -> Sequence[OutputLines] | None:
        """Return what a call that has ended printed; None if that is not to be reported here."""
        if call.output.silent:
            return ()
        return call.output.take(_PRINTED_BYTES) if self._redactor_for and not call.failed else None

    def _succeed_loudly(self, loud: Sequence[tuple[AttemptCall, Sequence[OutputLines]]], now: int) -> None:
        """End attempts that printed."""
        ended: dict[int, list[tuple[Delivery[Attempt], JobOutcome]]] = {}
        flushed: list[tuple[Job, Sequence[Flush]]] = []
        for call, printed in loud:
            attempt = call.key.body
            try:
                redactor = self._redactor_for(attempt.job.params) if self._redactor_for else None
                outcome, flushes = printed_outcome(attempt, call.result, printed, now, redactor=redactor)
            except Exception as error:  # noqa: BLE001  a fault of ours with one output ends no other attempt
                self._fail(call.key, error)
                continue
            ended.setdefault(attempt.started_at, []).append((call.key, outcome))
            flushed.append((attempt.job, flushes))
        BatchMetrics.flushed_together(flushed, now)
        for together in ended.values():
            self._succeed(together)

    def _succeed(self, ended: Sequence[tuple[Delivery[Attempt], JobOutcome]]) -> None:
        """End attempts that began and ended at the same time."""
        result = ended[0][1].result
        telemetry.attempts_ended.add(len(ended), "success")
        telemetry.attempt_time.record((result.completed_at - result.started_at) / 1000, len(ended))
        if _log.is_enabled_for(logging.INFO):
            for delivery, outcome in ended:
                log_end(delivery.body.job, outcome.result)
        self._finish(ended)


def _new_call(delivery: Delivery[Attempt], handler: Handler, output: JobOutput, now: int) -> AttemptCall:
    attempt = delivery.body
    job = attempt.job
    # Many handlers take no context, and need none.
    context = _context(job, output) if handler.arguments.wants_context else None
    call = HandlerCall(delivery, handler, job.params.payload_json, output=output, context=context)
    attempt.call, attempt.started_at, attempt.begun = call, now, True
    return call


def _context(job: Job, output: JobOutput) -> Context:
    return Context(
        job_id=job.job_id,
        queue=job.queue,
        attempt=job.attempt,
        request_id=job.request_id,
        last_try=job.life.tries_left <= 0,
        # Read-only: jobs with equal parameters may share theirs.
        environment=MappingProxyType(job.params.environment),
        metadata=MappingProxyType(job.params.metadata),
        owner=job.params.owner,
        output=output,
    )


def _ignore(*_: object) -> None:
    """Stands in for the consumer's functions until it begins something."""
