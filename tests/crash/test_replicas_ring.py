"""Two servers as processes that were told where they are: a line at one rings at the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from airunner.client import AsyncClient
from airunner.domain.event import Event
from airunner.domain.job import JobParams
from airunner.testing.conditions import until
from airunner.testing.factories import make_line
from tests.crash.replica_processes import running_replicas
from tests.doubles.aws.emulator import EmulatorProcess
from tests.support.scraping import scrape


@pytest.mark.slow
async def test_servers_that_were_told_where_they_are_ring_each_other(
    tmp_path: Path, emulator: EmulatorProcess, aws_env: str
) -> None:
    async with (
        running_replicas(tmp_path, emulator.url, aws_env) as replicas,
        AsyncClient(replicas.urls[0]) as first,
        AsyncClient(replicas.urls[1]) as second,
    ):
        await first.enqueue(JobParams(command="make"))
        (held,) = await first.dequeue(wait_seconds=20)
        seen: list[Event] = []
        watching = asyncio.create_task(_collect(second, held.job.job_id, seen))
        published = await first.publish_events(held.task_token, [make_line(1)])
        # Until it is said on the row that the second one watches.
        while not published.watched:
            line = make_line(published.next_sequence)
            published = await first.publish_events(held.task_token, [line])
        last = published.next_sequence
        await first.publish_events(held.task_token, [make_line(last)])
        await until(lambda: len(seen) == last)
        await until(lambda: scrape(replicas.urls[1]).value("airunner_bells_received_total") > 0)
        assert scrape(replicas.urls[0]).value("airunner_bells_sent_total", outcome="ok") > 0
        watching.cancel()


async def _collect(client: AsyncClient, job_id: str, seen: list[Event]) -> None:
    async for event in client.monitor(job_id):
        seen.append(event)  # noqa: PERF401  the test looks at it meanwhile
