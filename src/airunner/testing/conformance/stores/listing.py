"""Looking at jobs, queues and workers."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from airunner.domain.answers import QueueStats
from airunner.domain.errors import AirunnerError, FailedPrecondition, InvalidArgument, NotFound
from airunner.domain.job import JobParams, JobState
from airunner.domain.listing import JobPage, JobQuery
from airunner.domain.requests import OverviewQuery
from airunner.stores.pages import PageBounds
from airunner.testing.factories import make_failure, make_request, make_success

if TYPE_CHECKING:
    from airunner.domain.job import Job
    from airunner.testing.conformance.stores.backend import Api


def ids(page: JobPage) -> list[str]:
    return [job.job_id for job in page.jobs]


class ListingConformance:
    async def test_newest_first(self, api: Api) -> None:
        added = await api.enqueue_many(5)
        assert ids(await api.jobs.list_jobs(JobQuery())) == added[::-1]

    async def test_nothing_is_one_empty_page(self, api: Api) -> None:
        assert await api.jobs.list_jobs(JobQuery()) == JobPage(jobs=[], last_page=1, next_cursor="")

    async def test_by_queue(self, api: Api) -> None:
        one = await api.enqueue_many(2, queue="one")
        await api.enqueue_many(2, queue="two")
        assert ids(await api.jobs.list_jobs(JobQuery(queue="one"))) == one[::-1]
        assert ids(await api.jobs.list_jobs(JobQuery(queue="none"))) == []

    async def test_only_of_some_queues(self, api: Api) -> None:
        """What a caller sees that is bound to queues."""
        one, two = await api.enqueue_many(2, queue="one"), await api.enqueue_many(2, queue="two")
        await api.enqueue_many(1, queue="other")
        store = api.services.store
        for queues, expected in (
            ({"one", "two"}, two[::-1] + one[::-1]),
            ({"two"}, two[::-1]),
            ({"two", "nobody-uses-it"}, two[::-1]),
            ({"nobody-uses-it"}, []),
        ):
            page = await store.list_jobs(JobQuery(page_size=3), queues=queues)
            rest = await store.list_jobs(JobQuery(cursor=page.next_cursor), queues=queues)
            assert ids(page) + (ids(rest) if page.next_cursor else []) == expected
            assert page.last_page == max(1, -(-len(expected) // 3))
            scheduled = JobQuery(state=JobState.SCHEDULED)
            assert ids(await store.list_jobs(scheduled, queues=queues)) == expected

    async def test_by_state(self, api: Api) -> None:
        added = await api.enqueue_many(5)
        completed, failed, _ = await api.dequeue(max_jobs=3)
        await api.complete(completed)
        await api.complete(failed, make_failure())
        await api.jobs.cancel_job(added[4])
        for place, state in enumerate(
            [JobState.COMPLETED, JobState.FAILED, JobState.RUNNING, JobState.SCHEDULED, JobState.CANCELLED]
        ):
            assert ids(await api.jobs.list_jobs(JobQuery(state=state))) == [added[place]]
            assert ids(await api.jobs.list_jobs(JobQuery(queue="builds", state=state))) == [added[place]]
            assert ids(await api.jobs.list_jobs(JobQuery(queue="other", state=state))) == []

    async def test_what_is_large_of_a_job_is_left_out(self, api: Api) -> None:
        params = JobParams(command="make", args=("x" * 5_000,), metadata={"for": "nobody"})
        result = make_success(output_json=f'"{"y" * 5_000}"')
        held = await api.new_claim(make_request(params=params))
        await api.complete(held, result)
        (listed,) = (await api.jobs.list_jobs(JobQuery())).jobs
        assert listed.abridged
        assert listed.params == JobParams(command="make")
        assert listed.result == replace(result, output_json="")
        assert await api.jobs.get_job(held.job.job_id, abridge=True) == listed
        whole = await api.job(held)
        assert (whole.abridged, whole.params, whole.result) == (False, params, result)

    async def test_a_job_that_is_not_large_is_listed_whole(self, api: Api) -> None:
        held = await api.new_claim(make_request(params=JobParams(command="make", args=("x" * 4_000,))))
        await api.complete(held, make_success(output_json=f'"{"y" * 4_000}"'))
        whole = await api.job(held)
        assert list((await api.jobs.list_jobs(JobQuery())).jobs) == [whole]
        assert await api.jobs.get_job(held.job.job_id, abridge=True) == whole

    async def test_pages(self, api: Api) -> None:
        newest = (await api.enqueue_many(7))[::-1]
        pages = [await api.jobs.list_jobs(JobQuery(page=page, page_size=3)) for page in (1, 2, 3, 4)]
        assert [ids(page) for page in pages] == [newest[:3], newest[3:6], newest[6:], []]
        assert [page.last_page for page in pages] == [3, 3, 3, 3]

    async def test_a_full_last_page_is_the_last(self, api: Api) -> None:
        await api.enqueue_many(6)
        page = await api.jobs.list_jobs(JobQuery(page=2, page_size=3))
        assert (len(page.jobs), page.last_page, page.next_cursor) == (3, 2, "")

    async def test_the_default_page_has_20_jobs(self, api: Api) -> None:
        await api.jobs.enqueue_jobs([make_request() for _ in range(21)])
        page = await api.jobs.list_jobs(JobQuery())
        assert (len(page.jobs), page.last_page) == (20, 2)

    async def test_cursors_lead_through_everything_once(self, api: Api) -> None:
        added = await api.enqueue_many(7)
        assert await self.walk(api, JobQuery(page_size=3)) == added[::-1]

    async def test_cursors_are_stable_while_jobs_are_added(self, api: Api) -> None:
        added = await api.enqueue_many(7)
        first = await api.jobs.list_jobs(JobQuery(page_size=3))
        await api.enqueue_many(4)
        rest = await self.walk(api, JobQuery(page_size=3, cursor=first.next_cursor))
        assert ids(first) + rest == added[::-1]

    async def test_cursors_are_stable_while_old_jobs_are_purged(self, api: Api) -> None:
        await api.enqueue()
        await api.complete(await api.claim())
        await api.advance(3 * 24 * 3600)
        added = await api.enqueue_many(6)
        first = await api.jobs.list_jobs(JobQuery(page_size=3))
        await api.advance(4 * 24 * 3600)
        rest = await self.walk(api, JobQuery(page_size=3, cursor=first.next_cursor))
        assert ids(first) + rest == added[::-1]

    async def test_cursors_keep_to_their_conditions(self, api: Api) -> None:
        added = await api.enqueue_many(5)
        await api.enqueue_many(3, queue="other")
        query = JobQuery(queue="builds", state=JobState.SCHEDULED, page_size=2)
        assert await self.walk(api, query) == added[::-1]

    @pytest.mark.parametrize(
        "query",
        [
            JobQuery(queue="a b"),
            JobQuery(page=-1),
            JobQuery(page=1_000_001),
            JobQuery(page_size=-1),
            JobQuery(page_size=501),
            JobQuery(cursor="not ours"),
            JobQuery(cursor="j"),
            JobQuery(cursor="j" + "f" * 17),
        ],
    )
    async def test_what_is_out_of_range_is_refused(self, api: Api, query: JobQuery) -> None:
        with pytest.raises(InvalidArgument):
            await api.jobs.list_jobs(query)

    async def test_the_limits_themselves_are_accepted(self, api: Api) -> None:
        assert ids(await api.jobs.list_jobs(JobQuery(page=1_000_000, page_size=500))) == []

    async def test_an_unknown_job_is_not_found(self, api: Api) -> None:
        with pytest.raises(NotFound):
            await api.jobs.get_job(str(uuid.uuid4()))
        for wrong in ("", "67890", "x" * 36):
            with pytest.raises(InvalidArgument):
                await api.jobs.get_job(wrong)

    async def walk(self, api: Api, query: JobQuery) -> list[str]:
        found: list[str] = []
        while True:
            page = await api.jobs.list_jobs(query)
            found += ids(page)
            if not page.next_cursor:
                return found
            query = JobQuery(
                queue=query.queue, state=query.state, page_size=query.page_size, cursor=page.next_cursor
            )


class BoundedListingConformance:
    """Lists of more jobs than are counted and numbered; the store under test is made with `list_bounds`."""

    @pytest.fixture
    def list_bounds(self) -> PageBounds:
        return PageBounds(counted=10, numbered=20)

    async def test_pages_are_counted_up_to_a_number_of_jobs(self, api: Api) -> None:
        await self.enqueue(api, 10)
        assert (await self.listed(api, page=1, page_size=3)).last_page == 4

    async def test_beyond_it_there_is_only_a_next_page(self, api: Api) -> None:
        newest = (await self.enqueue(api, 11))[::-1]
        pages = [await self.listed(api, page=page, page_size=3) for page in range(1, 6)]
        assert [ids(page) for page in pages] == [newest[:3], newest[3:6], newest[6:9], newest[9:], []]
        assert [page.last_page for page in pages] == [2, 3, 4, 4, 5]
        assert [bool(page.next_cursor) for page in pages] == [True, True, True, False, False]

    async def test_beyond_another_there_are_only_cursors(self, api: Api) -> None:
        newest = (await self.enqueue(api, 43))[::-1]
        last = await self.listed(api, page=2, page_size=10)
        assert ids(last) == newest[10:20]
        assert last.last_page == 3
        for page, page_size in ((3, 10), (2, 11), (1, 21), (1_000_000, 500)):
            with pytest.raises(InvalidArgument, match="pages are numbered up to 20 jobs; use next_cursor"):
                await self.listed(api, page=page, page_size=page_size)
        rest = await self.listed(api, cursor=last.next_cursor, page_size=22)
        assert ids(rest) == newest[20:42]
        end = await self.listed(api, cursor=rest.next_cursor, page_size=22)
        assert (ids(end), end.next_cursor) == (newest[42:], "")

    async def test_a_page_beyond_the_end_of_a_short_list_is_empty(self, api: Api) -> None:
        await self.enqueue(api, 20)
        page = await self.listed(api, page=1_000, page_size=500)
        assert (ids(page), page.next_cursor) == ([], "")

    async def enqueue(self, api: Api, count: int) -> list[str]:
        outcomes = await api.jobs.enqueue_jobs([make_request() for _ in range(count)])
        return [outcome.job_id for outcome in outcomes if not isinstance(outcome, AirunnerError)]

    async def listed(self, api: Api, *, page: int = 1, page_size: int = 20, cursor: str = "") -> JobPage:
        return await api.jobs.list_jobs(
            JobQuery(queue="builds", page=page, page_size=page_size, cursor=cursor)
        )


class SecretsConformance:
    async def test_secret_values_reach_only_the_worker(self, api: Api) -> None:
        environment = {"TOKEN": "hush-hush", "CI": "1"}
        params = JobParams(command="make", environment=environment, secret_names=("TOKEN",))
        job_id = await api.enqueue(make_request(params=params))
        held = await api.claim()
        assert held.job.params == params
        shown: list[Job] = [
            await api.jobs.get_job(job_id),
            (await api.jobs.list_jobs(JobQuery())).jobs[0],
            await api.jobs.cancel_job(job_id),
        ]
        await api.complete(held)
        shown.append(await api.jobs.retry_job(job_id, str(uuid.uuid4())))
        for job in shown:
            assert job.params.environment == {"TOKEN": "********", "CI": "1"}
        assert (await api.claim()).job.params == params


class OverviewConformance:
    async def test_queues_are_listed_by_name_once_they_are_used(self, api: Api) -> None:
        assert await api.jobs.list_queues() == []
        created_at = api.clock.now()
        await api.enqueue_many(2, queue="two")
        await api.advance(5)
        await api.enqueue_many(3, queue="one")
        await api.claim("two")
        await api.jobs.set_paused("three", paused=True)
        paused_at = api.clock.now()
        assert list(await api.jobs.list_queues()) == [
            QueueStats(
                name="one", paused=False, scheduled=3, running=0, oldest_scheduled_at=created_at + 5_000
            ),
            QueueStats(
                name="three",
                paused=True,
                scheduled=0,
                running=0,
                oldest_scheduled_at=0,
                paused_by="anonymous",
                paused_at=paused_at,
            ),
            QueueStats(name="two", paused=False, scheduled=1, running=1, oldest_scheduled_at=created_at),
        ]

    async def test_queues_are_listed_page_by_page(self, api: Api) -> None:
        for queue in ("one", "two"):
            await api.enqueue(queue=queue)
        for queue in ("three", "low"):
            await api.jobs.set_paused(queue, paused=True)
        first = await api.jobs.page_queues(OverviewQuery(page_size=2))
        assert [queue.name for queue in first.queues] == ["low", "one"]
        # What comes or goes meanwhile shifts nothing.
        await api.enqueue(queue="high")
        second = await api.jobs.page_queues(OverviewQuery(page_size=2, cursor=first.next_cursor))
        assert [(queue.name, queue.paused) for queue in second.queues] == [("three", True), ("two", False)]
        assert second.next_cursor == ""

    async def test_workers_are_listed_page_by_page(self, api: Api) -> None:
        for worker_id in ("ann", "bob", "cyd"):
            await api.dequeue(worker_id=worker_id)
        first = await api.jobs.page_workers(OverviewQuery(page_size=2))
        assert [worker.worker_id for worker in first.workers] == ["ann", "bob"]
        await api.dequeue(worker_id="abe")
        second = await api.jobs.page_workers(OverviewQuery(page_size=2, cursor=first.next_cursor))
        assert [worker.worker_id for worker in second.workers] == ["cyd"]
        assert second.next_cursor == ""

    @pytest.mark.parametrize(
        "query", [OverviewQuery(page_size=-1), OverviewQuery(page_size=501), OverviewQuery(cursor="x" * 257)]
    )
    async def test_an_overview_that_is_out_of_range_is_refused(self, api: Api, query: OverviewQuery) -> None:
        with pytest.raises(InvalidArgument):
            await api.jobs.page_queues(query)
        with pytest.raises(InvalidArgument):
            await api.jobs.page_workers(query)

    async def test_a_queue_shows_who_paused_it_first_until_it_is_resumed(self, api: Api) -> None:
        store, noon = api.services.store, api.clock.now()

        async def shown() -> tuple[bool, str, int]:
            (queue,) = await api.jobs.list_queues()
            return queue.paused, queue.paused_by, queue.paused_at

        await store.set_paused("builds", paused=True, by="ann", now=noon)
        await store.set_paused("builds", paused=True, by="bob", now=noon + 1_000)
        assert await shown() == (True, "ann", noon)
        await store.set_paused("builds", paused=False, by="bob", now=noon + 2_000)
        assert await shown() == (False, "", 0)
        await store.set_paused("builds", paused=True, by="bob", now=noon + 3_000)
        assert await shown() == (True, "bob", noon + 3_000)

    async def test_a_queue_name_must_be_one(self, api: Api) -> None:
        for wrong in ("", "a b"):
            with pytest.raises(InvalidArgument):
                await api.jobs.set_paused(wrong, paused=True)

    async def test_a_worker_is_listed_with_what_it_holds(self, api: Api) -> None:
        await api.enqueue_many(2)
        held = await api.dequeue(max_jobs=2, worker_id="worker-1", more_queues=("other",))
        (worker,) = await api.jobs.list_workers()
        assert (worker.worker_id, list(worker.queues)) == ("worker-1", ["builds", "other"])
        assert worker.last_seen_at == api.clock.now()
        assert sorted(worker.job_ids) == sorted(one.job.job_id for one in held)
        await api.complete(held[0])
        await api.release(held[1])
        (worker,) = await api.jobs.list_workers()
        assert list(worker.job_ids) == []

    async def test_a_heartbeat_is_a_sign_of_life(self, api: Api) -> None:
        await api.enqueue()
        (held,) = await api.dequeue(worker_id="worker-1")
        await api.advance(10)
        await api.beat(held)
        (worker,) = await api.jobs.list_workers()
        assert worker.last_seen_at == api.clock.now()

    async def test_a_worker_of_which_nothing_is_heard_is_forgotten(self, api: Api) -> None:
        await api.dequeue(worker_id="worker-1")
        await api.advance(299)
        assert len(await api.jobs.list_workers()) == 1
        await api.advance(2)
        assert list(await api.jobs.list_workers()) == []

    async def test_a_job_that_another_took_is_no_longer_the_first_ones(self, api: Api) -> None:
        await api.enqueue()
        await api.dequeue(worker_id="worker-1", visibility_seconds=10)
        await api.lapse(10)
        (again,) = await api.dequeue()
        (worker,) = await api.jobs.list_workers()
        assert again.job.attempt == 2
        assert (worker.worker_id, list(worker.job_ids)) == ("worker-1", [])


class RetryConformance:
    async def test_a_retry_is_a_new_job_with_the_same_parameters(self, api: Api) -> None:
        request = make_request(max_attempts=7, params=JobParams(command="make", args=("x",)))
        held = await api.new_claim(request)
        await api.complete(held, make_failure())
        before = await api.job(held)
        copy = await api.jobs.retry_job(held.job.job_id, str(uuid.uuid4()))
        assert copy.job_id != held.job.job_id
        assert (copy.retried_from, copy.state, copy.attempt) == (held.job.job_id, JobState.SCHEDULED, 0)
        assert (copy.params, copy.queue, copy.life.max_attempts) == (request.params, "builds", 7)
        # A finished job stays as it ended.
        assert await api.job(held) == before

    async def test_a_retry_is_idempotent(self, api: Api) -> None:
        held = await api.new_claim()
        await api.complete(held)
        request_id = str(uuid.uuid4())
        first = await api.jobs.retry_job(held.job.job_id, request_id)
        assert await api.jobs.retry_job(held.job.job_id, request_id) == first

    async def test_only_a_finished_job_can_be_retried(self, api: Api) -> None:
        job_id = await api.enqueue()
        for _ in range(2):
            with pytest.raises(FailedPrecondition):
                await api.jobs.retry_job(job_id, str(uuid.uuid4()))
            await api.dequeue()

    async def test_what_cannot_be_retried(self, api: Api) -> None:
        with pytest.raises(NotFound):
            await api.jobs.retry_job(str(uuid.uuid4()), str(uuid.uuid4()))
        with pytest.raises(InvalidArgument):
            await api.jobs.retry_job("67890", str(uuid.uuid4()))
        with pytest.raises(InvalidArgument):
            await api.jobs.retry_job(str(uuid.uuid4()), "67890")
