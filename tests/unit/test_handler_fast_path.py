"""Handler jobs that end without a task, and those that are handed over to one."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from airunner.domain.event import ProcessEnd, ProcessStart
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import Job, JobParams, Outcome
from airunner.domain.lifecycle import Lifecycle
from airunner.handlers import Context
from airunner.handlers.registry import Registry
from airunner.queues.base import Delivery
from airunner.queues.task_runner import TaskRunner
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.factories import make_failure
from airunner.worker.attempt import Attempt, JobOutcome
from airunner.worker.handlers.fast_path import HandlerFastPath
from airunner.worker.publishing.publisher import Publisher
from airunner.worker.publishing.report import AttemptEnd, AttemptReport
from airunner.worker.secrets.redaction import LineRedactor
from tests.support.consumers import turns

LIMIT_SECONDS = 20
SECRET = b"correct horse"
BY_TASK = JobOutcome(result=make_failure())


class Bench:
    """A fast path, and in the place of a consumer what it reports."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        registry = Registry()
        for name, function in functions.items():
            registry.add(name, function, "here")
        self.clock = ManualClock()
        self.go = asyncio.Event()
        self.go.set()
        self.processed: list[Delivery[Attempt]] = []
        self.finished: list[tuple[Delivery[Attempt], JobOutcome]] = []
        self.failed: list[tuple[Delivery[Attempt], BaseException]] = []
        self.fast_path = HandlerFastPath(
            registry,
            TaskRunner(self._process),
            self.clock,
            threads=4,
            redactor_for=lambda _: LineRedactor({SECRET}),
        )

    def begin(self, *handlers: str) -> list[Delivery[Attempt]]:
        deliveries = [make_delivery(handler) for handler in handlers]
        self.fast_path.begin(deliveries, self._finish, self._fail)
        return deliveries

    async def _process(self, delivery: Delivery[Attempt]) -> JobOutcome:
        self.processed.append(delivery)
        if delivery.body.call:
            await delivery.body.call.done()
        await self.go.wait()
        return BY_TASK

    def _finish(self, results: Sequence[tuple[Delivery[Attempt], JobOutcome]]) -> None:
        self.finished += results

    def _fail(self, delivery: Delivery[Attempt], error: BaseException) -> None:
        self.failed.append((delivery, error))


@asynccontextmanager
async def calling(**functions: Callable[..., Any]) -> AsyncIterator[Bench]:
    bench = Bench(**functions)
    try:
        async with asyncio.timeout(LIMIT_SECONDS):
            yield bench
    finally:
        bench.fast_path.close()


def make_delivery(handler: str) -> Delivery[Attempt]:
    job = Job(
        job_id="01890000-0000-7000-8000-000000000001",
        queue="q",
        params=JobParams(handler=handler),
        execution=ExecutionConfig(),
        created_at=0,
        request_id="",
        principal="",
        life=Lifecycle(max_attempts=3, due_at=0, updated_at=0, attempt=1, worker_id="w"),
    )
    return Delivery(body=Attempt(job=job, task_token="token"), key=job.job_id)


async def test_what_succeeds_silently_ends_without_a_task() -> None:
    async def answer() -> int:
        return 42

    async with calling(nothing=lambda: None, answer=answer) as bench:
        deliveries = bench.begin("nothing", "answer")
        await until(lambda: len(bench.finished) == 2)
        bench.clock.advance(1)
        await turns()
        assert bench.processed == []
        outcomes = dict(bench.finished)
        assert [outcomes[delivery].result.output_json for delivery in deliveries] == ["", "42"]
        start, end = outcomes[deliveries[0]].events
        assert isinstance(start.data, ProcessStart)
        assert isinstance(end.data, ProcessEnd)
        assert outcomes[deliveries[0]].result.outcome is Outcome.SUCCESS
        assert outcomes[deliveries[0]].result.final_sequence == 2


async def test_a_clock_that_steps_back_meanwhile_ends_nothing_before_its_beginning() -> None:
    async with calling(nothing=lambda: None) as bench:
        (delivery,) = bench.begin("nothing")
        bench.clock.step(-3600)
        await until(lambda: len(bench.finished) == 1)
        outcome = dict(bench.finished)[delivery]
        start, end = outcome.events
        assert (end.timestamp, outcome.result.completed_at) == (start.timestamp, outcome.result.started_at)
        assert isinstance(end.data, ProcessEnd)
        assert end.data.run_duration_ms == 0


async def test_what_has_no_handler_here_is_a_task_from_the_start() -> None:
    async with calling(nothing=lambda: None) as bench:
        (unknown,) = bench.begin("unknown")
        await until(lambda: bench.finished == [(unknown, BY_TASK)])
        assert bench.processed == [unknown]
        assert not unknown.body.begun


async def test_what_lasts_is_handed_over_and_ends_by_its_task_alone() -> None:
    gate = threading.Event()
    async with calling(wait=lambda: gate.wait(LIMIT_SECONDS)) as bench:
        (slow,) = bench.begin("wait")
        bench.clock.advance(0.099)
        await turns()
        assert bench.processed == []
        bench.clock.advance(0.001)
        await turns()
        assert bench.processed == [slow]
        gate.set()
        await until(lambda: bench.finished == [(slow, BY_TASK)])


async def test_what_fails_is_handed_over() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async with calling(fail=fail) as bench:
        (failing,) = bench.begin("fail")
        await until(lambda: bool(bench.failed))
        assert bench.processed == [failing]
        (failed,) = bench.failed
        assert failed[0] is failing
        assert isinstance(failed[1], ValueError)
        assert bench.finished == []


async def test_what_prints_is_handed_over_with_its_first_line() -> None:
    gate = threading.Event()

    def chat(ctx: Context) -> None:
        ctx.log("hello")
        gate.wait(LIMIT_SECONDS)

    async with calling(chat=chat) as bench:
        (chatting,) = bench.begin("chat")
        await until(lambda: bench.processed == [chatting])
        assert not chatting.body.call.settled  # type: ignore[union-attr]  # it was called
        gate.set()
        await until(lambda: bench.finished == [(chatting, BY_TASK)])


async def test_what_prints_and_is_over_ends_without_a_task_as_if_it_had_one() -> None:
    def chat(ctx: Context) -> int:
        ctx.log("one")
        ctx.output.write("to standard error\n", is_stderr=True)
        ctx.output.write("the secret is correct", is_stderr=False)
        ctx.output.write(" horse, and no line end", is_stderr=False)
        return 42

    async with calling(chat=chat) as bench:
        (delivery,) = bench.begin("chat")
        await until(lambda: bool(bench.finished))
        bench.clock.advance(1)
        await turns()
        assert bench.processed == []
        outcome = dict(bench.finished)[delivery]
    published = await publish(
        bench.clock,
        make_delivery("chat"),
        [([b"one\n"], False), ([b"to standard error\n"], True), ([b"the secret is " + SECRET], False)],
        b", and no line end",
    )
    assert outcome.events == published.events
    assert outcome.result == published.result
    assert SECRET not in str(outcome).encode()


async def publish(
    clock: ManualClock, delivery: Delivery[Attempt], printed: Sequence[tuple[list[bytes], bool]], rest: bytes
) -> JobOutcome:
    """Report the same through a publisher, at the instant at which it happened."""
    clock = ManualClock(clock.now() - 1000)
    never: Any = None
    publisher = Publisher(delivery.body, events=never, clock=clock, on_cancel=lambda: None)
    report = AttemptReport(delivery, publisher, clock, redactor=LineRedactor({SECRET}))
    report.begin(os.getpid(), clock.now(), on_lost=lambda: None)
    for lines, is_stderr in printed[:-1]:
        assert report.output(lines, is_stderr) is None
    assert report.output([printed[-1][0][0] + rest], False) is None
    end = AttemptEnd(outcome=Outcome.SUCCESS, exit_code=0, output_json="42")
    process_end = ProcessEnd(pid=os.getpid(), exit_code=0, run_duration_ms=0)
    outcome = await report.conclude(end, process_end, clock.now())
    await report.close()
    return outcome


async def test_what_prints_much_or_reports_progress_or_fails_is_handed_over() -> None:
    def flood(ctx: Context) -> None:
        for _ in range(100):
            ctx.log("x" * 1000)

    def progress(ctx: Context) -> None:
        ctx.progress(1, 2)

    def fail(ctx: Context) -> None:
        ctx.log("before the end")
        raise LookupError

    async with calling(flood=flood, progress=progress, fail=fail) as bench:
        deliveries = bench.begin("flood", "progress", "fail")
        await until(lambda: len(bench.finished) + len(bench.failed) == 3)
        assert sorted(map(id, bench.processed)) == sorted(map(id, deliveries))


async def test_a_fault_with_the_output_of_one_fails_that_one_alone() -> None:
    def chat(ctx: Context) -> None:
        ctx.log("hello")

    async with calling(chat=chat) as bench:
        one, two = make_delivery("chat"), make_delivery("chat")
        faults = iter([RuntimeError("a bug")])

        def redactor_for(_: JobParams) -> LineRedactor:
            for fault in faults:
                raise fault
            return LineRedactor({SECRET})

        bench.fast_path._redactor_for = redactor_for
        bench.fast_path.begin([one, two], bench._finish, bench._fail)
        await until(lambda: len(bench.finished) + len(bench.failed) == 2)
        assert (len(bench.finished), [str(error) for _, error in bench.failed]) == (1, ["a bug"])


async def test_what_is_printed_after_the_report_is_dropped() -> None:
    contexts: list[Context] = []

    def keep(ctx: Context) -> None:
        ctx.log("in time")
        contexts.append(ctx)

    async with calling(keep=keep) as bench:
        bench.begin("keep")
        await until(lambda: bool(bench.finished))
        await asyncio.to_thread(contexts[0].log, "too late")
        await turns()
        assert bench.processed == []
        assert "too late" not in str(bench.finished)


async def test_a_thread_that_prints_after_the_end_changes_nothing() -> None:
    contexts: list[Context] = []

    def keep(ctx: Context) -> None:
        contexts.append(ctx)

    async with calling(keep=keep) as bench:
        (ended,) = bench.begin("keep")
        await until(lambda: bool(bench.finished))
        await asyncio.to_thread(contexts[0].log, "too late")
        await turns()
        assert bench.processed == []
        assert [delivery for delivery, _ in bench.finished] == [ended]


async def test_what_is_cancelled_is_handed_over_and_reported_once() -> None:
    gate = threading.Event()
    async with calling(wait=lambda: gate.wait(LIMIT_SECONDS)) as bench:
        (cancelled,) = bench.begin("wait")
        bench.fast_path.cancel(cancelled)
        await until(lambda: bool(bench.failed))
        assert isinstance(bench.failed[0][1], asyncio.CancelledError)
        gate.set()
        assert cancelled.body.call
        await cancelled.body.call.done()
        bench.clock.advance(1)
        await turns()
        assert (bench.processed, bench.finished, len(bench.failed)) == ([cancelled], [], 1)


async def test_a_task_from_the_start_is_cancelled_too() -> None:
    async with calling() as bench:
        bench.go.clear()
        (unknown,) = bench.begin("unknown")
        bench.fast_path.cancel(unknown)
        await until(lambda: bool(bench.failed))
        assert bench.processed == [unknown], "it has begun, so that it can see what it is to stop"
        assert isinstance(bench.failed[0][1], asyncio.CancelledError)


async def test_who_had_most_of_the_processor_is_suspected_and_nobody_else() -> None:
    working, enough, gate = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        working.set()
        while not enough.is_set():
            sum(range(10_000))
        gate.wait(LIMIT_SECONDS)

    async with calling(work=work, wait=lambda: gate.wait(LIMIT_SECONDS)) as bench:
        busy, _ = bench.begin("work", "wait")
        await until(working.is_set)
        bench.fast_path.suspects(0)
        began = time.thread_time()
        # As it stands still: the loop does nothing meanwhile, and others have the interpreter.
        await asyncio.to_thread(enough.wait, 0.3)
        assert time.thread_time() - began < 0.1
        assert bench.fast_path.suspects(0.3) == [f"work of job {busy.body.job.job_id}"]
        enough.set()
        gate.set()
        await until(lambda: bench.fast_path.suspects(60) == [])
