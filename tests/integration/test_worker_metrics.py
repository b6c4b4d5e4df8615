"""What a worker counts while the server is away: real processes, and only faults of the network made up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from airunner import telemetry
from airunner.domain.errors import InvalidArgument, Unavailable
from airunner.domain.event import Gap
from airunner.domain.requests import StreamRequest
from airunner.testing.conditions import until
from tests.support.scraping import Change, gauge_value
from tests.support.workers import working

PRINTS_AND_WAITS = "seq 200; until test -e go; do sleep 0.02; done"


def failing(times: int) -> Callable[[], Exception | None]:
    """A fault that goes away after so many calls."""
    left = iter(range(times))
    return lambda: None if next(left, None) is None else Unavailable("the server is away")


async def test_events_are_buffered_until_the_server_has_them(tmp_path: Path) -> None:
    retries, latency = Change(telemetry.publish_retries), Change(telemetry.publish_latency)
    buffered_before = gauge_value(telemetry.events_buffered)

    def buffered() -> float:
        return gauge_value(telemetry.events_buffered) - buffered_before

    async with working(tmp_path) as bench:
        bench.events.errors["publish_events"] = lambda: Unavailable("the server is away")
        job_id = await bench.submit("sh", "-c", PRINTS_AND_WAITS, working_directory=str(tmp_path))
        await until(lambda: buffered() == 201 and retries() >= 1)
        assert latency() == 0
        bench.events.errors.clear()
        await until(lambda: buffered() == 0)
        assert latency() >= 1
        assert gauge_value(telemetry.attempts_running) == 1
        (tmp_path / "go").touch()
        await bench.end_of(job_id)
        await until(lambda: gauge_value(telemetry.attempts_running) == 0)
        assert buffered() == 0


async def test_calls_that_fail_are_counted(tmp_path: Path) -> None:
    receives, beats = Change(telemetry.receives_failed), Change(telemetry.heartbeats_failed)
    async with working(tmp_path) as bench:
        bench.jobs.errors["dequeue_jobs"] = failing(2)
        bench.jobs.errors["update_job"] = failing(1)
        job_id = await bench.submit("sh", "-c", PRINTS_AND_WAITS, working_directory=str(tmp_path))
        await until(lambda: beats() == 1 and bench.jobs.made["update_job"] >= 2)
        (tmp_path / "go").touch()
        await bench.end_of(job_id)
        await until(lambda: receives() == 2)


async def test_slots_are_those_of_workers_that_run(tmp_path: Path) -> None:
    before = gauge_value(telemetry.worker_slots)
    async with working(tmp_path, concurrency=7):
        await until(lambda: gauge_value(telemetry.worker_slots) - before == 7)
    assert gauge_value(telemetry.worker_slots) == before


async def test_events_that_a_gap_stands_for_are_counted(tmp_path: Path) -> None:
    lost = Change(telemetry.events_lost)
    async with working(tmp_path) as bench:
        refusals = iter((InvalidArgument("no"), InvalidArgument("never")))
        bench.events.errors["publish_events"] = lambda: next(refusals, None)
        job_id = await bench.submit("seq", "200")
        await bench.end_of(job_id)
        request = StreamRequest(job_id=job_id, follow=False)
        gaps = [
            event.data.last_sequence - event.data.first_sequence + 1
            async for event in bench.services.events.stream_events(request)
            if isinstance(event.data, Gap)
        ]
    assert lost() == sum(gaps) > 0
