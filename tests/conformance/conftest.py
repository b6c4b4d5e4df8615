"""The stores under test, and how they are reached: one line each."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from airunner.client import AsyncClient
from airunner.services.composition import ServiceRules
from airunner.stores.aws.listing import ListingBounds
from airunner.stores.base import JobStore
from airunner.stores.memory import MemoryStore
from airunner.stores.pages import PageBounds
from airunner.stores.sqlite import SqliteStore
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import Api, OpenApi
from airunner.testing.factories import NEVER_SECONDS, make_services
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import BorrowLayout, make_store, more_names
from tests.support.quick_serving import serve_quickly

# By `make test-aws`: then the emulator is not used.
_ON_ACCOUNT = "TEST_AWS_ENV" in os.environ

MakeStore = Callable[[Path, ManualClock, PageBounds], Awaitable[JobStore]]
Reach = Callable[[JobStore, ManualClock, ServiceRules], AbstractAsyncContextManager[Api]]


@dataclass(frozen=True, slots=True)
class Backend:
    """A store, and the way to it. One on the emulator is made of the fixtures in its stead."""

    name: str
    make_store: MakeStore | None
    reach: Reach


@asynccontextmanager
async def in_process(store: JobStore, clock: ManualClock, rules: ServiceRules) -> AsyncIterator[Api]:
    async with make_services(store, clock, rules) as services:
        yield _api_class()(jobs=services.jobs, events=services.events, clock=clock, services=services)


def _api_class() -> type[Api]:
    if not _ON_ACCOUNT:
        return Api
    from tests.support.account import PatientApi

    return PatientApi


@asynccontextmanager
async def over_rpc(store: JobStore, clock: ManualClock, rules: ServiceRules) -> AsyncIterator[Api]:
    async with (
        make_services(store, clock, rules) as services,
        serve_quickly(services) as url,
        AsyncClient(url) as client,
    ):
        yield Api(jobs=client, events=client, clock=clock, services=services)


async def memory(_: Path, clock: ManualClock, bounds: PageBounds) -> JobStore:
    return MemoryStore(clock, list_bounds=bounds)


async def sqlite(folder: Path, clock: ManualClock, bounds: PageBounds) -> JobStore:
    return SqliteStore(folder / "store", clock, list_bounds=bounds)


BACKENDS = (
    Backend("memory", memory, in_process),
    Backend("sqlite", sqlite, in_process),
    Backend("memory-rpc", memory, over_rpc),
    Backend("sqlite-rpc", sqlite, over_rpc),
    Backend("aws", None, in_process),
)

# Hundreds of calls that are all alike, which take the emulator seconds.
_MANY_CALLS = frozenset({
    "test_a_backlog_of_15_days_is_done",
    "test_a_call_has_1_to_500_entries",
    "test_a_job_of_36_hours_stays_with_its_holder",
    "test_many_old_jobs_are_purged_in_one_pass",
    "test_more_than_a_page_of_events_is_replayed",
    "test_nothing_is_lost_or_repeated_between_replay_and_live",
    "test_the_last_hundred_are_kept",
    "test_the_limit_counts_what_is_scheduled_whatever_happened",
})  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before the marks decide who runs
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.originalname in _MANY_CALLS and "[aws" in item.name:
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def list_bounds() -> PageBounds:
    """How far lists are counted and numbered; suites about that have smaller ones."""
    return PageBounds()


@pytest.fixture(params=BACKENDS, ids=[backend.name for backend in BACKENDS])
def open_api(request: pytest.FixtureRequest, tmp_path: Path, list_bounds: PageBounds) -> OpenApi:
    backend: Backend = request.param
    # Only who needs the emulator starts it.
    aws_fixture = "make_account_store" if _ON_ACCOUNT else "make_aws_store"
    make_store = backend.make_store or request.getfixturevalue(aws_fixture)
    make_clock = request.getfixturevalue("make_clock")

    @asynccontextmanager
    async def opened(rules: ServiceRules) -> AsyncIterator[Api]:
        clock = make_clock()
        async with backend.reach(await make_store(tmp_path, clock, list_bounds), clock, rules) as api:
            yield api

    return opened


@pytest.fixture
def make_aws_store(
    request: pytest.FixtureRequest, aws: StrictProxy, borrow_layout: BorrowLayout
) -> MakeStore:
    async def made(_: Path, clock: ManualClock, bounds: PageBounds) -> JobStore:
        layout = await borrow_layout(more_names(request), bucket=True)
        listing = ListingBounds(counted=bounds.counted, numbered=bounds.numbered)
        return make_store(aws.url, layout, clock, listing)

    return made


@pytest.fixture
def make_account_store(request: pytest.FixtureRequest) -> MakeStore:
    """The same on an account, where `make test-aws` asks for it."""
    account = request.getfixturevalue("empty_account")

    async def made(_: Path, clock: ManualClock, bounds: PageBounds) -> JobStore:
        listing = ListingBounds(counted=bounds.counted, numbered=bounds.numbered)
        store: JobStore = account.store(more_names(request), clock, listing)
        return store

    return made


@pytest.fixture
def make_clock() -> Callable[[], ManualClock]:
    """What makes the clock of a test; on an account it stands still."""
    if not _ON_ACCOUNT:
        return ManualClock
    from tests.support.account import StandingClock

    return StandingClock


@pytest.fixture
async def api(open_api: OpenApi) -> AsyncIterator[Api]:
    async with open_api(ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)) as opened:
        yield opened
