"""Python handlers in a real worker, on real threads and loops."""

# ruff: noqa: T201  what becomes of prints is what is tested

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from airunner.domain.event import ProcessEnd, ProcessStart, Progress, StreamType
from airunner.domain.job import JobState, Outcome
from airunner.domain.requests import DequeueRequest, StreamRequest
from airunner.handlers import Context, JobProcessingError, PermanentFailure
from airunner.handlers.registry import Registry
from airunner.testing.conditions import until
from tests.support.workers import working


def registry(*functions: Callable[..., Any]) -> Registry:
    found = Registry()
    for function in functions:
        found.add(function.__name__, function, "here")
    return found


async def test_sync_and_async_handlers_do_jobs(tmp_path: Path) -> None:
    def add(payload: dict[str, int], ctx: Context) -> dict[str, int]:
        print("adding")
        print("careful", file=sys.stderr)
        logging.getLogger("sums").info("logged")
        ctx.log("done", by=ctx.queue)
        ctx.progress(2, 2)
        return {"sum": payload["a"] + payload["b"]}

    async def later(payload: dict[str, int]) -> int:
        print("before")
        await asyncio.sleep(0)
        print("after", end="")
        return payload["a"]

    async with working(tmp_path, handlers=registry(add, later), concurrency=2) as bench:
        log = await bench.do(handler="ADD", payload_json='{"a": 1, "b": 2}')
        assert (log.job.state, log.result.output_json) == (JobState.COMPLETED, '{"sum":3}')
        assert log.output(StreamType.STDOUT) == b"adding\ndone by=q\n"
        assert log.output(StreamType.STDERR) == b"careful\nINFO sums: logged\n"
        assert [event.data for event in log.events if isinstance(event.data, Progress)] == [
            Progress(done=2, total=2)
        ]
        log = await bench.do(handler="later", payload_json='{"a": 7}')
        assert (log.result.output_json, log.output()) == ("7", b"before\nafter")


async def test_many_at_once_print_each_to_its_own_job(tmp_path: Path) -> None:
    together = threading.Barrier(8)

    def sync(payload: int) -> None:
        together.wait(30)
        for number in range(200):
            print(f"{payload}:{number}")

    async def concurrent(payload: int) -> None:
        for number in range(200):
            print(f"{payload}:{number}")
            await asyncio.sleep(0)

    async with working(tmp_path, handlers=registry(sync, concurrent), concurrency=16) as bench:
        names = ["sync"] * 8 + ["concurrent"] * 8
        jobs = [await bench.submit(handler=name, payload_json=str(index)) for index, name in enumerate(names)]
        for index, job_id in enumerate(jobs):
            expected = "".join(f"{index}:{number}\n" for number in range(200))
            assert (await bench.log_of(job_id)).output() == expected.encode()


async def test_an_error_is_shown_and_tried_again(tmp_path: Path) -> None:
    def boom(payload: dict[str, str]) -> None:
        print("trying")
        raise ValueError(f"no good: {payload['token']}")

    async with working(tmp_path, handlers=registry(boom)) as bench:
        job_id = await bench.submit(
            handler="boom",
            payload_json='{"token": "open-sesame"}',
            environment={"TOKEN": "open-sesame"},
            secret_names=("TOKEN",),
            max_attempts=2,
        )
        log = await bench.log_of(job_id)
        assert (log.job.state, log.job.attempt) == (JobState.FAILED, 2)
        assert log.result.outcome is Outcome.FAILURE
        assert log.result.error_message == "ValueError: no good: [redacted]"
        assert len(log.errors) == 2
        assert 'raise ValueError(f"no good' in log.errors[0]
        assert "open-sesame" not in "".join(log.errors)
        assert "site-packages" not in log.errors[0]
        assert "handler_calls.py" not in log.errors[0]


async def test_a_permanent_failure_ends_the_job(tmp_path: Path) -> None:
    async def broke() -> None:
        raise PermanentFailure("no_credit", "the account is empty")

    async with working(tmp_path, handlers=registry(broke)) as bench:
        log = await bench.do(handler="broke")
        assert (log.job.state, log.job.attempt) == (JobState.FAILED, 1)
        assert log.job.life.tries_left > 0
        assert log.result.error_message == "no_credit: the account is empty"
        assert log.errors == ["no_credit: the account is empty"]


async def test_all_permanent_errors_end_the_job_and_no_other_does(tmp_path: Path) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    errors: dict[str, Exception] = {
        "no_user": ValueError("DLQ:no_user"),
        "lost: user 7": JobProcessingError("user 7", permanent=True, code="lost"),
        "JobProcessingError: away": JobProcessingError("away"),
        "ValueError: DLQ:a/b": ValueError("DLQ:a/b"),
        "Mute": Mute(),
    }

    def fails(payload: str) -> None:
        raise errors[payload]

    async with working(tmp_path, handlers=registry(fails), concurrency=5) as bench:
        jobs = [
            await bench.submit(handler="fails", payload_json=json.dumps(text), max_attempts=2)
            for text in errors
        ]
        logs = [await bench.log_of(job_id) for job_id in jobs]
        assert [log.result.error_message for log in logs] == list(errors)
        assert [log.job.attempt for log in logs] == [1, 1, 2, 2, 2]


async def test_a_handler_knows_its_request_and_its_last_try(tmp_path: Path) -> None:
    seen: list[tuple[str, int, bool]] = []

    async def fails(ctx: Context) -> None:
        seen.append((ctx.request_id, ctx.attempt, ctx.last_try))
        raise ValueError("no good")

    async with working(tmp_path, handlers=registry(fails)) as bench:
        log = await bench.log_of(await bench.submit(handler="fails", max_attempts=2))
        assert seen == [(log.job.request_id, 1, False), (log.job.request_id, 2, True)]
        assert log.job.request_id


async def test_odd_ends_are_failures_of_that_job_alone(tmp_path: Path) -> None:
    def leaves() -> None:
        sys.exit(3)

    def stops() -> None:
        raise StopIteration

    async def gives_up() -> None:
        raise asyncio.CancelledError

    def unspeakable() -> object:
        return object()

    functions = (leaves, stops, gives_up, unspeakable)
    async with working(tmp_path, handlers=registry(*functions), concurrency=4) as bench:
        for name, error in (
            ("leaves", "SystemExit: 3"),
            ("stops", "StopIteration"),
            ("gives_up", "CancelledError"),
            ("unspeakable", "no JSON form"),
        ):
            log = await bench.log_of(await bench.submit(handler=name, max_attempts=1))
            assert log.job.state is JobState.FAILED
            assert error in log.result.error_message


async def test_cancelling_reaches_both_kinds(tmp_path: Path) -> None:
    ended = []

    def waiting(ctx: Context) -> None:
        print("waiting")
        ctx.wait(60)
        ended.append(ctx.cancelled)

    async def sleeper() -> None:
        print("waiting")
        try:
            await asyncio.sleep(60)
        finally:
            print("cleaned up")

    async with working(tmp_path, handlers=registry(waiting, sleeper), concurrency=2) as bench:
        for name, last in (("waiting", b"waiting\n"), ("sleeper", b"waiting\ncleaned up\n")):
            job_id = await bench.submit(handler=name)
            await bench.first_output(job_id)
            await bench.services.jobs.cancel_job(job_id)
            log = await bench.log_of(job_id)
            assert (log.job.state, log.result.outcome) == (JobState.CANCELLED, Outcome.CANCELLED)
            assert log.output() == last
        assert ended == [True]


async def test_a_timeout_ends_a_handler(tmp_path: Path) -> None:
    async def sleeper() -> None:
        await asyncio.sleep(60)

    async with working(tmp_path, handlers=registry(sleeper)) as bench:
        log = await bench.do(handler="sleeper", timeout_seconds=1)
        assert (log.result.outcome, log.result.error_message) == (Outcome.TIMEOUT, "timed out after 1 s")


async def test_a_handler_that_blocks_its_loop_starves_no_heartbeat(tmp_path: Path) -> None:
    enough = threading.Event()

    async def blocks() -> None:
        enough.wait(60)

    async with working(tmp_path, handlers=registry(blocks), visibility_timeout_seconds=1) as bench:
        job_id = await bench.submit(handler="blocks")
        await until(lambda: bench.jobs.made["update_job"] > 5)
        enough.set()
        job = await bench.end_of(job_id)
        assert (job.state, job.attempt) == (JobState.COMPLETED, 1)


async def test_a_lost_attempt_is_forgotten_and_keeps_its_slot_until_it_returns(tmp_path: Path) -> None:
    told, go = threading.Event(), threading.Event()

    def deaf(ctx: Context) -> None:
        if ctx.attempt == 1:
            ctx.wait(60)
            told.set()
            go.wait(60)
            print("too late")

    async with working(tmp_path, handlers=registry(deaf), visibility_timeout_seconds=1) as bench:
        job_id = await bench.submit(handler="deaf")
        await until(lambda: bench.jobs.made["dequeue_jobs"] > 0)
        bench.jobs.errors["update_job"] = lambda: OSError("cut off")
        (taken,) = await bench.services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=20))
        assert taken.job.attempt == 2
        bench.jobs.errors.clear()
        assert await asyncio.to_thread(told.wait, 30)
        other = await bench.submit(handler="deaf")
        assert (await bench.services.jobs.get_job(other)).state is JobState.SCHEDULED
        go.set()
        # The second job's first attempt waits for its own cancellation.
        await until_running(bench, other)
        await bench.services.jobs.cancel_job(other)
        await bench.end_of(other)
        request = StreamRequest(job_id=job_id, follow=False)
        events = [event async for event in bench.services.events.stream_events(request)]
        assert [type(event.data) for event in events] == [ProcessStart]


async def test_a_tiny_job_costs_no_call_of_its_own(tmp_path: Path) -> None:
    async def tiny(payload: int) -> int:
        return payload

    async with working(tmp_path, handlers=registry(tiny), concurrency=50) as bench:
        jobs = [await bench.submit(handler="tiny", payload_json=str(number)) for number in range(200)]
        for number, job_id in enumerate(jobs):
            log = await bench.log_of(job_id)
            assert (log.result.output_json, len(log.events)) == (str(number), 2)
        assert bench.events.made["publish_events"] == 0
        assert bench.jobs.made["complete_jobs"] <= 100


async def test_a_slow_silent_handler_is_seen_to_have_begun(tmp_path: Path) -> None:
    release = threading.Event()

    def silent() -> None:
        release.wait(60)

    async with working(tmp_path, handlers=registry(silent)) as bench:
        job_id = await bench.submit(handler="silent")
        await until(lambda: bench.events.made["publish_events"] == 1)
        release.set()
        assert len((await bench.log_of(job_id)).events) == 2


async def test_a_flood_of_output_arrives_whole(tmp_path: Path) -> None:
    line = "x" * 999 + "\n"

    def flood() -> None:
        for _ in range(6_000):
            sys.stdout.write(line)

    async with working(tmp_path, handlers=registry(flood)) as bench:
        assert (await bench.do(handler="flood")).output() == line.encode() * 6_000


async def test_a_worker_that_stops_gives_handlers_back(tmp_path: Path) -> None:
    async def sleeper() -> None:
        print("begun")
        await asyncio.sleep(60)

    async with working(tmp_path, handlers=registry(sleeper), drain_seconds=0) as bench:
        job_id = await bench.submit(handler="sleeper")
        await bench.first_output(job_id)
        bench.worker.stop()
        await bench.work
        job = await bench.services.jobs.get_job(job_id)
        assert (job.state, job.attempt) == (JobState.SCHEDULED, 1)


async def until_running(bench: Any, job_id: str) -> None:
    while (await bench.services.jobs.get_job(job_id)).state is not JobState.RUNNING:
        await asyncio.sleep(0)


async def test_a_small_job_is_told_in_one_call_and_a_lasting_one_shows_that_it_runs(tmp_path: Path) -> None:
    gate = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def quick() -> int:
        return 7

    async def lasting() -> None:
        loops.append(asyncio.get_running_loop())
        await gate.wait()

    async with working(tmp_path, handlers=registry(quick, lasting), concurrency=4) as bench:
        log = await bench.do(handler="quick")
        assert [type(event.data) for event in log.events] == [ProcessStart, ProcessEnd]
        assert (log.result.output_json, log.result.final_sequence) == ("7", 2)
        assert log.result.output_sha256 == hashlib.sha256().digest()
        assert bench.events.made["publish_events"] == 0
        lasts = await bench.submit(handler="lasting")
        await until(lambda: bench.events.made["publish_events"] > 0)
        loops[0].call_soon_threadsafe(gate.set)
        log = await bench.log_of(lasts)
        assert [type(event.data) for event in log.events] == [ProcessStart, ProcessEnd]
