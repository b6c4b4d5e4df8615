"""Jobs that ask for other batching than the server's: over the wire, and in what a worker stores."""

from __future__ import annotations

import array
import fcntl
import os
import termios
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from airunner.client import AsyncClient
from airunner.domain.answers import Enqueued
from airunner.domain.clock import SystemClock
from airunner.domain.errors import AlreadyExists, InvalidArgument
from airunner.domain.event import EventType, ProcessStart
from airunner.domain.execution import BatchingConfig, ExecutionConfig
from airunner.domain.job import JobParams
from airunner.domain.requests import BatchingOverride, ExecutionOverride, StreamRequest
from airunner.services.composition import ServiceRules
from airunner.services.job_requests import JobRules
from airunner.stores.memory import MemoryStore
from airunner.testing.conditions import until
from airunner.testing.factories import NEVER_SECONDS, make_request, make_services
from tests.support.serving import serve
from tests.support.workers import Bench, working

SERVERS = ExecutionConfig(
    batching=BatchingConfig(
        flush_interval_seconds=3,
        max_batch_size=20,
        max_batch_bytes=5000,
        playback_interval_millis=40,
        adaptive=False,
    ),
    heartbeat_interval_seconds=9,
)


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    """A client of a server with settings of its own."""
    clock = SystemClock()
    rules = ServiceRules(jobs=JobRules(execution=SERVERS), maintenance_interval_seconds=NEVER_SECONDS)
    async with (
        make_services(MemoryStore(clock), clock, rules) as services,
        serve(services) as url,
        AsyncClient(url) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (None, SERVERS),
        (ExecutionOverride(), SERVERS),
        (
            ExecutionOverride(batching=BatchingOverride(max_batch_size=1)),
            ExecutionConfig(
                batching=BatchingConfig(
                    flush_interval_seconds=3,
                    max_batch_size=1,
                    max_batch_bytes=5000,
                    playback_interval_millis=40,
                    adaptive=False,
                ),
                heartbeat_interval_seconds=9,
            ),
        ),
        (
            ExecutionOverride(
                batching=BatchingOverride(
                    flush_interval_seconds=7,
                    max_batch_bytes=1024,
                    playback_interval_millis=1,
                    adaptive=True,
                ),
                heartbeat_interval_seconds=5,
            ),
            ExecutionConfig(
                batching=BatchingConfig(
                    flush_interval_seconds=7,
                    max_batch_size=20,
                    max_batch_bytes=1024,
                    playback_interval_millis=1,
                    adaptive=True,
                ),
                heartbeat_interval_seconds=5,
            ),
        ),
    ],
)
async def test_what_an_override_leaves_out_stays_the_servers(
    client: AsyncClient, override: ExecutionOverride | None, expected: ExecutionConfig
) -> None:
    made = await client.enqueue(JobParams(command="make"), execution=override)
    assert (await client.get_job(made.job_id)).execution == expected
    (held,) = await client.dequeue()
    assert held.job.execution == expected


@pytest.mark.parametrize(
    ("override", "field"),
    [
        (ExecutionOverride(batching=BatchingOverride(flush_interval_seconds=3601)), "flush_interval_seconds"),
        (ExecutionOverride(batching=BatchingOverride(flush_interval_seconds=-1)), "flush_interval_seconds"),
        (ExecutionOverride(batching=BatchingOverride(max_batch_size=51)), "max_batch_size"),
        (ExecutionOverride(batching=BatchingOverride(max_batch_bytes=1023)), "max_batch_bytes"),
        (ExecutionOverride(batching=BatchingOverride(max_batch_bytes=350 * 1024 + 1)), "max_batch_bytes"),
        (
            ExecutionOverride(batching=BatchingOverride(playback_interval_millis=60_001)),
            "playback_interval_millis",
        ),
        (ExecutionOverride(heartbeat_interval_seconds=43_201), "heartbeat_interval_seconds"),
    ],
)
async def test_what_is_beyond_the_limits_is_refused(
    client: AsyncClient, override: ExecutionOverride, field: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"{field} must be from"):
        await client.enqueue(JobParams(command="make"), execution=override)


async def test_an_override_is_a_part_of_what_a_request_id_stands_for(client: AsyncClient) -> None:
    request_id = make_request().request_id
    override = ExecutionOverride(batching=BatchingOverride(max_batch_size=1))
    params = JobParams(command="make")
    made = await client.enqueue(params, request_id=request_id, execution=override)
    again = await client.enqueue(params, request_id=request_id, execution=override)
    assert again.job_id == made.job_id
    with pytest.raises(AlreadyExists):
        await client.enqueue(params, request_id=request_id)


async def stored_sizes(bench: Bench, job_id: str) -> list[int]:
    """How many lines each stored event of output has."""
    output = frozenset({EventType.OUTPUT_DATA})
    request = StreamRequest(job_id=job_id, follow=False, event_filter=output)
    pages = [page async for page in bench.services.events.stream_pages(request) if page]
    stored = [event for page in pages for event in page.events]
    return [event.last_sequence - event.first_sequence + 1 for event in stored]


async def submit(bench: Bench, *command: str, **batching: Any) -> str:
    override = ExecutionOverride(batching=BatchingOverride(**batching))
    params = JobParams(command=command[0], args=command[1:])
    (made,) = await bench.services.jobs.enqueue_jobs([make_request("q", params=params, execution=override)])
    assert isinstance(made, Enqueued)
    return made.job_id


async def test_an_adaptive_server_stays_so_where_an_override_says_nothing(tmp_path: Path) -> None:
    async with working(tmp_path, queues=("other",)) as bench:
        job = await bench.services.jobs.get_job(await submit(bench, "true", max_batch_size=1))
    assert job.execution.batching == BatchingConfig(max_batch_size=1, adaptive=True)


@pytest.mark.parametrize(("max_batch_size", "sizes"), [(1, [1] * 100), (30, [30, 30, 30, 10])])
async def test_a_worker_stores_batches_of_the_size_that_the_job_asked_for(
    tmp_path: Path, max_batch_size: int, sizes: list[int]
) -> None:
    async with working(tmp_path) as bench:
        fixed: dict[str, Any] = {"flush_interval_seconds": 3600, "adaptive": False}
        job_id = await submit(bench, "seq", "100", max_batch_size=max_batch_size, **fixed)
        log = await bench.log_of(job_id)
        assert log.output() == b"".join(b"%d\n" % number for number in range(1, 101))
        assert await stored_sizes(bench, job_id) == sizes


@pytest.mark.parametrize("adaptive", [True, False])
async def test_without_adapting_a_watched_job_keeps_its_interval(tmp_path: Path, adaptive: bool) -> None:
    begin, go_on = tmp_path / "begin", tmp_path / "go-on"
    os.mkfifo(begin)
    os.mkfifo(go_on)
    script = f"cat {begin}; seq 10; cat {go_on}; seq 10"
    async with working(tmp_path) as bench:
        job_id = await submit(bench, "sh", "-c", script, flush_interval_seconds=3600, adaptive=adaptive)
        watching = bench.services.events.stream_events(StreamRequest(job_id=job_id))
        async with aclosing(watching):
            start = (await anext(watching)).data
            assert isinstance(start, ProcessStart)
            await until(lambda: bench.events.made["publish_events"] == 1)
            begin.write_bytes(b"")
            with go_on.open("wb"):  # opens when the process has printed its first lines and waits here
                await until(lambda: unread_bytes(start.pid) == 0)
                read_at = bench.services.clock.now()
                # An adaptive one publishes after 100 ms.
                await until(
                    lambda: (
                        bench.events.made["publish_events"] > 1 or bench.services.clock.now() > read_at + 500
                    )
                )
            await bench.end_of(job_id)
        sizes = await stored_sizes(bench, job_id)
    assert sum(sizes) == 20
    assert (len(sizes) > 1) is adaptive, sizes


def unread_bytes(pid: int) -> int:
    """How much of what a process printed is still in its pipe."""
    descriptor = os.open(f"/proc/{pid}/fd/1", os.O_RDONLY | os.O_NONBLOCK)
    try:
        count = array.array("i", [0])
        fcntl.ioctl(descriptor, termios.FIONREAD, count)
        return count[0]
    finally:
        os.close(descriptor)
