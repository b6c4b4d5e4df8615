"""How long finished jobs and events are kept."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from airunner.domain.errors import NotFound
from airunner.domain.listing import JobQuery
from airunner.domain.requests import StreamRequest
from airunner.services.composition import ServiceRules
from airunner.stores.records import Retention
from airunner.testing.factories import NEVER_SECONDS, make_batch, make_line, make_request

if TYPE_CHECKING:
    from airunner.testing.conformance.stores.backend import Api, OpenApi

DAY = 24 * 3600


class RetentionConformance:
    async def test_a_finished_job_is_kept_for_7_days_and_purged_with_its_events(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_batch(1, 3))
        await api.complete(held)
        await api.advance(7 * DAY - 1)
        assert len(await api.stored(held.job.job_id)) == 3
        await api.advance(1)
        with pytest.raises(NotFound):
            await api.job(held)
        with pytest.raises(NotFound):
            await api.read(StreamRequest(job_id=held.job.job_id))
        assert (await api.jobs.list_jobs(JobQuery())).jobs == []
        if not api.capabilities.configured_queues:
            assert list(await api.jobs.list_queues()) == []

    async def test_retention_counts_from_the_end_of_the_job(self, api: Api) -> None:
        held = await api.new_claim()
        await api.advance(10 * DAY)
        await api.complete(held)
        await api.advance(6 * DAY)
        assert (await api.job(held)).state.terminal

    async def test_a_job_that_has_not_ended_is_never_purged(self, api: Api) -> None:
        held = await api.new_claim()
        queued = await api.enqueue()
        await api.advance(100 * DAY)
        assert not (await api.job(held)).state.terminal
        assert not (await api.jobs.get_job(queued)).state.terminal

    async def test_a_request_id_is_remembered_as_long_as_its_job(self, api: Api) -> None:
        request = make_request()
        held = await api.new_claim(request)
        await api.complete(held)
        await api.advance(7 * DAY - 1)
        assert await api.enqueue(request) == held.job.job_id
        await api.advance(1)
        assert await api.enqueue(request) != held.job.job_id

    async def test_events_are_kept_for_30_days_by_the_clock_of_the_server(self, api: Api) -> None:
        held = await api.new_claim()
        await api.publish(held, make_batch(1, 3))
        await api.advance(DAY)
        # Their own timestamps are long past, which does not matter.
        await api.publish(held, make_line(4, at=1))
        await api.advance(29 * DAY - 1)
        assert len(await api.stored(held.job.job_id)) == 4
        await api.advance(1)
        assert await api.stored(held.job.job_id) == [(1, 4)]
        assert (await api.publish(held, make_line(5))).next_sequence == 6

    async def test_a_purge_of_so_many_goes_on_where_it_ended(self, open_api: OpenApi) -> None:
        rules = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
        async with open_api(rules) as api:
            store = api.services.store
            jobs = [await api.enqueue() for _ in range(7)]
            for job_id in jobs[:5]:
                await api.jobs.cancel_job(job_id)
            ended_at = api.clock.now()
            api.clock.advance(1)
            await api.jobs.cancel_job(jobs[5])
            counted = await store.purge_jobs(ended_at, limit=25, dry_run=True)
            assert (counted.jobs, counted.has_more) == (5, False)
            assert (await store.purge_jobs(ended_at, limit=100_000, dry_run=True)) == counted
            first = await store.purge_jobs(ended_at, limit=3)
            assert (first.jobs, first.has_more) == (3, True)
            assert (await store.purge_jobs(ended_at, limit=25)).jobs == 2
            last = await store.purge_jobs(ended_at, limit=25)
            assert (last.jobs, last.has_more) == (0, False)
            left = (await api.jobs.list_jobs(JobQuery())).jobs
            assert {job.job_id for job in left} == set(jobs[5:])

    async def test_jobs_that_somebody_else_purges_stay(self, open_api: OpenApi) -> None:
        retention = Retention(jobs_ms=None, events_ms=1000)
        rules = ServiceRules(retention=retention, maintenance_interval_seconds=NEVER_SECONDS)
        async with open_api(rules) as api:
            old = await api.enqueue()
            await api.jobs.cancel_job(old)
            await api.advance(8 * DAY)
            assert (await api.jobs.get_job(old)).job_id == old

    async def test_many_old_jobs_are_purged_in_one_pass(self, open_api: OpenApi) -> None:
        retention = Retention(jobs_ms=1000, events_ms=1000)
        rules = ServiceRules(retention=retention, maintenance_interval_seconds=NEVER_SECONDS)
        async with open_api(rules) as api:
            # More than one step of the upkeep takes; a store that is reached over a network takes small ones.
            many = 60 if api.capabilities.configured_queues else 450
            await api.jobs.enqueue_jobs([make_request() for _ in range(many)])
            page = await api.jobs.list_jobs(JobQuery(page_size=500))
            await asyncio.gather(*(api.jobs.cancel_job(job.job_id) for job in page.jobs))
            survivor = await api.enqueue()
            await api.advance(1)
            left = (await api.jobs.list_jobs(JobQuery())).jobs
            assert [job.job_id for job in left] == [survivor]
