"""Pages of events: bounded in number and in bytes, on every store; never empty while there is an event."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from airunner.codec.events import encode_event
from airunner.domain.event import Position
from airunner.domain.requests import DequeueRequest, StreamRequest
from airunner.services.composition import Services
from airunner.stores.memory import MemoryStore
from airunner.stores.records import EventQuery
from airunner.stores.sqlite.store import SqliteStore
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_batch, make_request, make_services

EVENTS = [make_batch(first, first + 9) for first in range(1, 101, 10)]
SIZE = len(encode_event(EVENTS[5]).payload)


@pytest.fixture(params=["memory", "sqlite"])
async def services(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Services]:
    clock = ManualClock()
    store = MemoryStore(clock) if request.param == "memory" else SqliteStore(tmp_path, clock)
    async with make_services(store, clock) as opened:
        yield opened


@pytest.mark.parametrize(
    ("limit", "max_bytes", "events", "full"),
    [
        (64, 2**30, 10, False),
        (10, 2**30, 10, True),
        (3, 2**30, 3, True),
        (64, 1, 1, True),
        (64, 3 * SIZE - 20, 3, True),
    ],
)
async def test_a_page_ends_by_number_or_by_size(
    services: Services, limit: int, max_bytes: int, events: int, full: bool
) -> None:
    job_id = await _printed(services)
    query = EventQuery(job_id=job_id, after=Position(0, 0), limit=limit, max_bytes=max_bytes)
    page = await services.store.read_events(query)
    assert (len(page.events), page.full) == (events, full)
    # From the middle of a batch, that batch comes first.
    page = await services.store.read_events(replace(query, after=Position(1, 35)))
    assert page.events[0].first_sequence == 31


async def test_nothing_is_lost_between_pages_of_any_size(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = services.store.read_events
    for max_bytes in (1, SIZE, 3 * SIZE, 2**30):
        monkeypatch.setattr(
            services.store,
            "read_events",
            lambda query, limit=max_bytes: read(replace(query, max_bytes=limit)),
        )
        request = StreamRequest(job_id=await _printed(services), follow=False)
        seen = [event.sequence async for event in services.events.stream_events(request)]
        assert seen == list(range(1, 101))


async def _printed(services: Services) -> str:
    await services.jobs.enqueue_jobs([make_request("q")])
    (held,) = await services.jobs.dequeue_jobs(DequeueRequest(queue="q", wait_seconds=0))
    await services.events.publish_events(held.task_token, EVENTS)
    return held.job.job_id
