"""Handlers that do not end when they are told to: their jobs end without them, and nobody else suffers."""

# ruff: noqa: T201  what becomes of prints is what is tested

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airunner import telemetry
from airunner.domain.job import JobState, Outcome
from airunner.handlers import Context
from airunner.handlers.registry import Registry
from airunner.testing.conditions import until
from tests.support.workers import Bench, working

LIMIT_SECONDS = 60


class Deaf:
    """A sync and an async handler that go on until `go` is set, whatever they are told."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.runs = 0
        self.contexts: list[Context] = []

    def sync(self, ctx: Context) -> str:
        self._begin(ctx)
        self.go.wait(LIMIT_SECONDS)
        print("too late")
        ctx.progress(1, 1)
        return "too late"

    async def later(self, ctx: Context) -> str:
        self._begin(ctx)
        while not self.go.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                print("not me")
        print("too late")
        raise ValueError("too late")

    def _begin(self, ctx: Context) -> None:
        self.runs += 1
        self.contexts.append(ctx)
        print("begun")

    def registry(self, *others: Callable[..., Any]) -> Registry:
        found = Registry()
        for function in (self.sync, self.later, *others):
            found.add(function.__name__, function, "here")
        return found


def tiny() -> None:
    """Do nothing."""


@pytest.mark.parametrize("kind", ["sync", "later"])
async def test_a_time_out_that_is_ignored_ends_the_job_and_keeps_the_slot(tmp_path: Path, kind: str) -> None:
    deaf = Deaf()
    async with working(tmp_path, handlers=deaf.registry(tiny), grace_seconds=0) as bench:
        try:
            log = await bench.do(handler=kind, timeout_seconds=1)
            assert (log.job.state, log.job.attempt) == (JobState.FAILED, 1)
            assert (log.result.outcome, log.result.error_message) == (Outcome.TIMEOUT, "timed out after 1 s")
            assert deaf.contexts[0].cancelled
            beats = bench.jobs.made["update_job"]
            waiting = await bench.submit(handler="tiny")
            assert await overdue() == 1
            assert await state_of(bench, waiting) is JobState.SCHEDULED
            assert bench.jobs.made["dequeue_jobs"] == 1, "without a free slot nothing is asked for"
        finally:
            deaf.go.set()
        assert (await bench.end_of(waiting)).state is JobState.COMPLETED
        assert await overdue() == 0
        assert bench.jobs.made["update_job"] == beats, "the attempt was over, and nobody held it"
        assert b"too late" not in (await bench.log_of(log.job.job_id)).output()
        assert (await bench.services.jobs.get_job(log.job.job_id)).result == log.result
        assert deaf.runs == 1


async def test_a_cancellation_that_is_ignored_ends_the_job_after_the_grace_period(tmp_path: Path) -> None:
    deaf = Deaf()
    async with working(tmp_path, handlers=deaf.registry(), grace_seconds=0.2) as bench:
        try:
            job_id = await bench.submit(handler="later")
            await bench.first_output(job_id)
            await bench.services.jobs.cancel_job(job_id)
            log = await bench.log_of(job_id)
            assert (log.job.state, log.result.outcome) == (JobState.CANCELLED, Outcome.CANCELLED)
            assert log.output() == b"begun\nnot me\n"
        finally:
            deaf.go.set()


async def test_neighbours_run_once_beside_one_that_ignores_its_time_out(tmp_path: Path) -> None:
    deaf = Deaf()
    options = {"concurrency": 3, "visibility_timeout_seconds": 1, "grace_seconds": 0}
    async with working(tmp_path, handlers=deaf.registry(tiny), **options) as bench:
        try:
            ignoring = [await bench.submit(handler=kind, timeout_seconds=1) for kind in ("sync", "later")]
            for job_id in ignoring:
                assert (await bench.log_of(job_id)).result.outcome is Outcome.TIMEOUT
            for _ in range(5):
                job = await bench.end_of(await bench.submit(handler="tiny"))
                assert (job.state, job.attempt) == (JobState.COMPLETED, 1)
        finally:
            deaf.go.set()


async def test_a_worker_stops_at_once_though_a_handler_goes_on_after_its_job(tmp_path: Path) -> None:
    deaf = Deaf()
    async with working(tmp_path, handlers=deaf.registry(), drain_seconds=LIMIT_SECONDS) as bench:
        try:
            await bench.do(handler="sync", timeout_seconds=1)
            bench.worker.stop()
            # Well before the drain is over: nothing is held any more.
            await asyncio.wait_for(asyncio.shield(bench.work), 20)
        finally:
            deaf.go.set()


async def test_a_worker_that_stops_gives_back_the_job_of_a_handler_that_goes_on(tmp_path: Path) -> None:
    deaf = Deaf()
    async with working(tmp_path, handlers=deaf.registry(), drain_seconds=0, grace_seconds=0.1) as bench:
        try:
            job_id = await bench.submit(handler="sync")
            await bench.first_output(job_id)
            bench.worker.stop()
            await asyncio.wait_for(asyncio.shield(bench.work), 20)
            assert await state_of(bench, job_id) is JobState.SCHEDULED
        finally:
            deaf.go.set()


async def test_one_that_prints_without_end_does_not_hold_up_the_end_of_its_job(tmp_path: Path) -> None:
    go = threading.Event()

    def chatter() -> None:
        while not go.is_set():
            print("x" * 1000)

    registry = Registry()
    registry.add("chatter", chatter, "here")
    async with working(tmp_path, handlers=registry, grace_seconds=0) as bench:
        try:
            job = await bench.end_of(await bench.submit(handler="chatter", timeout_seconds=1))
            assert job.result is not None
            assert job.result.outcome is Outcome.TIMEOUT
        finally:
            go.set()


async def overdue() -> float:
    """Return how many handlers go on without a job, after the loop had its turns."""
    await until(lambda: True)
    return telemetry.handlers_overdue.read()[()]


async def state_of(bench: Bench, job_id: str) -> JobState:
    return (await bench.services.jobs.get_job(job_id)).state
