"""Maintenance at the steady load of a large fleet: it keeps up, turns, and rests between its passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import pytest
from starlette.routing import Route

from airunner.domain.errors import InternalError, Unavailable
from airunner.domain.lifecycle import Lifecycle
from airunner.server.pages import health_routes
from airunner.services.composition import ServiceRules, Services
from airunner.stores.memory import MemoryStore
from airunner.stores.records import Retention, Upkeep
from airunner.testing.clock import ManualClock
from airunner.testing.factories import make_services

JOBS_PER_SECOND = 1_000
REPLICAS = 13
HOUR, DAY = 3_600, 86_400
RETENTION_DAYS = 7
INTERVAL_SECONDS = 30
# What a pass takes on AWS: so much for looking at all shards, so much for each job, and where it stops.
LOOK_SECONDS = 0.2
JOB_SECONDS = 0.0036
PASS_SECONDS = 20


class Fleet:
    """All jobs that come of age, as a number: whoever purges them first has purged them."""

    def __init__(self, clock: ManualClock, jobs_per_second: float) -> None:
        self.clock = clock
        self.purged = 0
        self._jobs_per_second = jobs_per_second
        self._began_at = clock.monotonic()

    @property
    def seconds(self) -> float:
        return (self.clock.monotonic() - self._began_at) / 1000

    @property
    def due(self) -> int:
        """How many jobs are to be purged: none before the first has been there for its retention."""
        aged = max(0.0, self.seconds - RETENTION_DAYS * DAY)
        return int(aged * self._jobs_per_second) - self.purged


class CountingStore(MemoryStore):
    """Has no jobs, only their number, and takes the time that AWS takes."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet.clock)
        self._fleet = fleet
        self.passes = 0
        self.is_away = False

    async def maintain(self, retention: Retention, now: int) -> Upkeep:
        self.passes += 1
        if self.is_away:
            raise Unavailable("The store does not answer; try again.")
        most = int((PASS_SECONDS - LOOK_SECONDS) / JOB_SECONDS)
        jobs = min(self._fleet.due, most)
        self._fleet.purged += jobs
        await self._fleet.clock.sleep(LOOK_SECONDS + jobs * JOB_SECONDS)
        return Upkeep(purged_jobs=jobs, has_more=jobs == most)


class Servers:
    """The services of some servers, and the health that each of them shows."""

    def __init__(self, fleet: Fleet, stores: Sequence[CountingStore], services: Sequence[Services]) -> None:
        self.fleet = fleet
        self.stores = stores
        self._healthz = [cast("Route", health_routes(one)[0]).endpoint for one in services]

    async def run_until(self, seconds: float) -> set[int]:
        """Let time pass from timer to timer; return what the health pages said on the way."""
        clock, seen = self.fleet.clock, set[int]()
        while self.fleet.seconds < seconds:
            for _ in range(4):
                await asyncio.sleep(0)
            clock.advance((clock._timers[0][0] - clock.now()) / 1000)
            seen |= {status for status in await self.statuses() if status not in seen}
        return seen

    async def statuses(self) -> set[int]:
        return {(await page(None)).status_code for page in self._healthz}


@asynccontextmanager
async def serving(servers: int) -> AsyncIterator[Servers]:
    """Run some of the fleet's servers, with their share of the jobs."""
    clock = ManualClock()
    fleet = Fleet(clock, JOBS_PER_SECOND * servers / REPLICAS)
    stores = [CountingStore(fleet) for _ in range(servers)]
    rules = ServiceRules(maintenance_interval_seconds=INTERVAL_SECONDS)
    async with AsyncExitStack() as stack:
        services = [await stack.enter_async_context(make_services(store, clock, rules)) for store in stores]
        yield Servers(fleet, stores, services)


def skip_to_old_jobs(servers: Servers) -> None:
    """Begin when the first jobs come of age; what comes before is rest."""
    servers.fleet._began_at -= RETENTION_DAYS * DAY * 1000


async def test_thirteen_servers_purge_a_thousand_jobs_a_second_and_rest_between() -> None:
    async with serving(REPLICAS) as servers:
        skip_to_old_jobs(servers)
        assert await servers.run_until(RETENTION_DAYS * DAY + 2 * HOUR) == {200}
        assert await servers.statuses() == {200}
        # All of it but what came since the last pass of each.
        assert servers.fleet.due < 2 * INTERVAL_SECONDS * JOBS_PER_SECOND
        assert max(store.passes for store in servers.stores) <= 2 * HOUR / INTERVAL_SECONDS


async def test_an_outage_of_a_day_makes_no_server_look_stuck_and_is_caught_up_with() -> None:
    async with serving(1) as servers:
        skip_to_old_jobs(servers)
        (store,) = servers.stores
        store.is_away = True
        assert await servers.run_until(RETENTION_DAYS * DAY + DAY) == {200}
        store.is_away = False
        behind = servers.fleet.due
        assert await servers.run_until(RETENTION_DAYS * DAY + 2 * DAY) == {200}
        assert servers.fleet.due < 2 * INTERVAL_SECONDS * JOBS_PER_SECOND < behind


async def test_a_job_that_cannot_be_read_after_its_end_fails_no_pass() -> None:
    class Unreadable(MemoryStore):
        async def maintain(self, retention: Retention, now: int) -> Upkeep:
            return Upkeep(ended_jobs=["a", "b"])

        async def get_life(self, job_id: str, *, queues: Collection[str] = ()) -> Lifecycle:
            raise InternalError("This server cannot read the job.")

    clock = ManualClock()
    async with make_services(Unreadable(clock), clock) as services:
        await services.maintenance.run_once()


@pytest.mark.slow
async def test_a_month_of_one_server_of_thirteen() -> None:
    async with serving(1) as servers:
        assert await servers.run_until(30 * DAY) == {200}
        assert servers.fleet.purged > 22 * DAY * JOBS_PER_SECOND / REPLICAS
        assert servers.stores[0].passes <= 30 * DAY / INTERVAL_SECONDS
