"""Lists on AWS beyond what they count, number and look at, with bounds that are small."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import structlog

from airunner.aws.calls import Aws
from airunner.domain.job import JobState
from airunner.domain.listing import JobPage, JobQuery
from airunner.services.composition import ServiceRules
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.listing import ListingBounds
from airunner.stores.aws.store import AwsStore
from airunner.stores.records import ApiKey
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import NEVER_SECONDS, make_request, make_services
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import BorrowLayout, make_store, options_of

pytest_plugins = ("tests.support.aws",)

BOUNDS = ListingBounds(counted=10, numbered=20, looked_at=2)


@pytest.fixture
async def api(aws: StrictProxy, borrow_layout: BorrowLayout) -> AsyncIterator[Api]:
    clock, layout = ManualClock(), await borrow_layout()
    store = AwsStore(
        Aws(options_of(aws.url)), layout, clock, short_poll_seconds=0, watches_parts=False, list_bounds=BOUNDS
    )
    rules = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
    async with make_services(store, clock, rules) as services:
        yield Api(jobs=services.jobs, events=services.events, clock=clock, services=services)


async def test_a_rare_state_is_looked_for_in_bounded_steps(api: Api, aws: StrictProxy) -> None:
    rare = await api.enqueue()
    await api.jobs.cancel_job(rare)
    await enqueue(api, 60)
    cursor, found, steps = "", list[str](), 0
    while steps == 0 or cursor:
        aws.counts.reset()
        page = await listed(api, state=JobState.CANCELLED, cursor=cursor)
        # Two shards, ten queries of each.
        assert aws.counts.calls["Query"] <= 20
        found += ids(page)
        cursor = page.next_cursor
        steps += 1
    assert found == [rare]
    assert steps > 1


async def test_a_page_that_was_given_up_says_that_there_is_more(api: Api) -> None:
    await api.jobs.cancel_job(await api.enqueue())
    await enqueue(api, 60)
    page = await listed(api, state=JobState.CANCELLED)
    assert (ids(page), page.last_page) == ([], 2)


async def test_all_of_a_state_come_once_however_often_the_search_is_given_up(api: Api) -> None:
    added = await enqueue(api, 70)
    some = added[::23]
    for job_id in some:
        await api.jobs.cancel_job(job_id)
    cursor, found = "", list[str]()
    while not found or cursor:
        page = await listed(api, state=JobState.CANCELLED, cursor=cursor, page_size=2)
        found += ids(page)
        cursor = page.next_cursor
    assert found == some[::-1]


async def test_a_list_of_all_queues_is_warned_of(api: Api) -> None:
    with structlog.testing.capture_logs() as logs:
        await listed(api)
        assert logs == []
        await api.jobs.list_jobs(JobQuery())
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("aws.list_all", "warning")]


async def test_a_queue_that_is_called_keys_has_nothing_to_do_with_api_keys(
    emulator: EmulatorProcess, borrow_layout: BorrowLayout
) -> None:
    clock, layout = ManualClock(), await borrow_layout(["keys"])
    store = make_store(emulator.url, layout, clock)
    rules = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
    async with make_services(store, clock, rules) as services:
        await store.add_key(api_key("new", created_at=2))
        await add_as_older_versions_do(store, layout, api_key("old", created_at=1))
        outcomes = await services.jobs.enqueue_jobs([make_request("keys") for _ in range(6)])
        assert not [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        assert [key.key_id for key in await store.list_keys()] == ["old", "new"]
        page = await services.jobs.list_jobs(JobQuery(queue="keys", page_size=6))
        assert (len(page.jobs), page.last_page) == (6, 1)


def api_key(key_id: str, *, created_at: int) -> ApiKey:
    return ApiKey(
        key_id=key_id,
        name="ci",
        secret_hash=b"hash",
        scopes=frozenset({"jobs:read"}),
        queues=frozenset(),
        created_at=created_at,
        revoked_at=0,
    )


async def add_as_older_versions_do(store: AwsStore, layout: Layout, key: ApiKey) -> None:
    """Put a key into the part of the index that a queue called `keys` has, too."""
    await store.add_key(key)
    await store._aws.dynamodb(
        "UpdateItem",
        TableName=layout.jobs_table,
        Key={"job_id": {"S": f"key#{key.key_id}"}},
        UpdateExpression="SET list_key = :former",
        ExpressionAttributeValues={":former": {"S": "keys#0"}},
    )


async def enqueue(api: Api, count: int) -> list[str]:
    outcomes = await api.jobs.enqueue_jobs([make_request() for _ in range(count)])
    return [outcome.job_id for outcome in outcomes if not isinstance(outcome, Exception)]


async def listed(
    api: Api, *, state: JobState | None = None, page: int = 1, page_size: int = 20, cursor: str = ""
) -> JobPage:
    return await api.jobs.list_jobs(
        JobQuery(queue="builds", state=state, page=page, page_size=page_size, cursor=cursor)
    )


def ids(page: JobPage) -> list[str]:
    return [job.job_id for job in page.jobs]
