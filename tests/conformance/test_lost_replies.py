"""The store conformance suites over RPC, on SQLite, while one in ten replies never reaches the client.

The server executes every call; what a client repeats must have no second effect. Only a dequeue is spared:
what it claimed cannot be asked for again.
"""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from airunner.client import AsyncClient
from airunner.domain.clock import SystemClock
from airunner.domain.errors import NotFound
from airunner.domain.job import JobState
from airunner.domain.requests import ReleaseRequest
from airunner.domain.retry import RetryPolicy
from airunner.domain.token import TokenSigner
from airunner.services.api import JobsApi
from airunner.services.composition import ServiceRules
from airunner.stores.pages import PageBounds
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import Api, OpenApi
from airunner.testing.factories import TOKEN_KEY, make_services
from tests.conformance import test_stores as suites
from tests.conformance.conftest import sqlite
from tests.support.lost_replies import ReplyLosingProxy, reply_losing_proxy
from tests.support.quick_serving import serve_quickly

_SOON = RetryPolicy(first_seconds=0.001, max_seconds=0.01)


# Tests in which no reply is lost, and why.
_SPARED = {
    "test_ten_streams_of_a_job_are_enough": "a stream that broke counts until its server has noticed",
    "test_it_extends_at_once_and_answers_after_its_wait": "a heartbeat that is repeated extends again",
    "test_it_never_waits_beyond_the_visibility": "same",
}


class SharedClock(SystemClock):
    """The clock of a client that sees the server's time, and sleeps by its own."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def now(self) -> int:
        return self._clock.now()


@dataclass(frozen=True, slots=True)
class CarefulJobs:
    """The job side of a client that knows what a release means whose reply was lost, and was repeated.

    It is told that the attempt is over, which is what it wanted.
    """

    client: AsyncClient
    proxy: ReplyLosingProxy

    async def release_job(self, request: ReleaseRequest) -> JobState:
        token = TokenSigner([TOKEN_KEY]).decode(request.task_token)
        before = await self.client.get_job(token.job_id)
        lost = self.proxy.lost["ReleaseJob"]
        try:
            return await self.client.release_job(request)
        except NotFound:
            was_ours = (before.attempt, before.state) == (token.attempt, JobState.RUNNING)
            if not was_ours or self.proxy.lost["ReleaseJob"] == lost:
                raise
        return (await self.client.get_job(token.job_id)).state

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)


@pytest.fixture
def open_api(request: pytest.FixtureRequest, tmp_path: Path, list_bounds: PageBounds) -> OpenApi:
    """Open the same as over RPC; what is lost follows from the name of the test, or from CRASH_SEED."""
    share = 0.0 if request.node.originalname in _SPARED else 0.1
    seed = int(os.environ.get("CRASH_SEED") or zlib.crc32(request.node.nodeid.encode()))

    @asynccontextmanager
    async def opened(rules: ServiceRules) -> AsyncIterator[Api]:
        clock = ManualClock()
        async with (
            make_services(await sqlite(tmp_path, clock, list_bounds), clock, rules) as services,
            serve_quickly(services) as url,
            reply_losing_proxy(url, random.Random(seed), share=share) as proxy,
            AsyncClient(proxy.url, retry=_SOON, clock=SharedClock(clock)) as client,
        ):
            # What they do not have themselves they pass on, which a type cannot say.
            jobs = cast("JobsApi", CarefulJobs(client, proxy))
            yield Api(jobs=jobs, events=client, clock=clock, services=services)

    return opened


class TestEnqueue(suites.TestEnqueue):
    pass


class TestPublish(suites.TestPublish):
    pass


class TestComplete(suites.TestComplete):
    pass


@pytest.mark.slow
class TestDequeue(suites.TestDequeue):
    pass


@pytest.mark.slow
class TestVisibility(suites.TestVisibility):
    pass


class TestLongLives(suites.TestLongLives):
    pass


@pytest.mark.slow
class TestFencing(suites.TestFencing):
    pass


@pytest.mark.slow
class TestRelease(suites.TestRelease):
    pass


@pytest.mark.slow
class TestCancel(suites.TestCancel):
    pass


@pytest.mark.slow
class TestListing(suites.TestListing):
    pass


@pytest.mark.slow
class TestSecrets(suites.TestSecrets):
    pass


@pytest.mark.slow
class TestOverview(suites.TestOverview):
    pass


@pytest.mark.slow
class TestRetry(suites.TestRetry):
    pass


@pytest.mark.slow
class TestReplay(suites.TestReplay):
    pass


@pytest.mark.slow
class TestLive(suites.TestLive):
    pass


@pytest.mark.slow
class TestWaitingUpdate(suites.TestWaitingUpdate):
    pass


@pytest.mark.slow
class TestWaitingGet(suites.TestWaitingGet):
    pass


@pytest.mark.slow
class TestRetention(suites.TestRetention):
    pass


@pytest.mark.slow
class TestSettings(suites.TestSettings):
    pass


@pytest.mark.slow
class TestRunning(suites.TestRunning):
    pass


@pytest.mark.slow
class TestAbilities(suites.TestAbilities):
    pass


@pytest.mark.slow
class TestFirstLease(suites.TestFirstLease):
    pass


@pytest.mark.slow
class TestBoundedListing(suites.TestBoundedListing):
    pass


def test_every_suite_is_here() -> None:
    assert {name for name in vars(suites) if name.startswith("Test")} <= globals().keys()
