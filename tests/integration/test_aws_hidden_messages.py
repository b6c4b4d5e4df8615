"""How long SQS hides the message of a job: for 12 hours in all, and no row depends on it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pytest

from airunner import telemetry
from airunner.aws import sqs
from airunner.aws.calls import Aws
from airunner.domain.answers import DequeuedJob
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import make_request, make_services
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws_stores import BorrowLayout, ClockOfAll, make_store, options_of
from tests.support.scraping import Change

HOUR = 3600
LONGEST = 12 * HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    api: Api
    proxy: StrictProxy

    async def claim(self, visibility_seconds: int) -> DequeuedJob:
        """Claim a new job, to the last call that follows from it."""
        await self.api.enqueue()
        held = await self.api.claim(visibility_seconds=visibility_seconds)
        await self.finish()
        return held

    async def beat(self, held: DequeuedJob) -> int:
        """Send a heartbeat; return how many calls of SQS followed."""
        self.proxy.counts.reset()
        await self.api.beat(held)
        await self.finish()
        return self.proxy.counts.calls["ChangeMessageVisibilityBatch"]

    async def finish(self) -> None:
        store = self.api.services.store
        assert isinstance(store, AwsStore)
        await store._background_tasks.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    replica: Replica
    other: Replica
    clock: ClockOfAll
    account: Aws
    layout: Layout

    async def hidden(self) -> int:
        return (await sqs.count_messages(self.account, self.layout.queues[QUEUE]))["in_flight"]


@pytest.fixture
async def site(
    strict_aws: StrictAws, emulator: EmulatorProcess, borrow_layout: BorrowLayout
) -> AsyncIterator[Site]:
    clock, layout = ClockOfAll(emulator), await borrow_layout()
    async with AsyncExitStack() as stack:
        replicas = []
        for _ in range(2):
            proxy = await stack.enter_async_context(strict_aws.proxy())
            store = make_store(proxy.url, layout, clock, real_clock=clock)
            services = await stack.enter_async_context(make_services(store, clock))
            api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
            replicas.append(Replica(api=api, proxy=proxy))
        account = await stack.enter_async_context(Aws(options_of(emulator.url)))
        yield Site(replica=replicas[0], other=replicas[1], clock=clock, account=account, layout=layout)


async def test_the_longest_visibility_hides_the_message_as_long_as_sqs_can(site: Site) -> None:
    failed = Change(telemetry.aws_follow_ups_failed)
    await site.replica.claim(LONGEST)
    site.clock.advance(LONGEST - 300)
    assert await site.hidden() == 1
    assert failed() == 0


async def test_who_received_a_message_stops_extending_it_after_12_hours(site: Site) -> None:
    failed = Change(telemetry.aws_follow_ups_failed)
    held = await site.replica.claim(2 * HOUR)
    calls = []
    for _ in range(15):
        site.clock.advance(HOUR)
        calls.append(await site.replica.beat(held))
    assert calls == [1] * 11 + [0] * 4
    assert failed() == 0
    await site.replica.api.complete(held)


async def test_who_did_not_receive_it_learns_that_once(site: Site) -> None:
    failed = Change(telemetry.aws_follow_ups_failed)
    held = await site.replica.claim(2 * HOUR)
    calls = []
    for _ in range(15):
        site.clock.advance(HOUR)
        calls.append(await site.other.beat(held))
    # The tenth is refused: it would hide the message for longer than 12 hours in all.
    assert calls == [1] * 10 + [0] * 5
    assert failed() == 0
    # What is shown is not hidden, and may be asked for.
    await site.other.api.release(held, unstarted=True)
    assert (await site.replica.api.claim()).job.attempt == 2


async def test_a_message_that_is_gone_is_not_extended_again_and_again(site: Site) -> None:
    failed = Change(telemetry.aws_follow_ups_failed)
    held = await site.replica.claim(HOUR)
    await sqs.delete(site.account, site.layout.queues[QUEUE], [held.job.receipt])
    assert [await site.other.beat(held) for _ in range(3)] == [1, 0, 0]
    assert failed() == 0


async def test_a_delayed_job_gets_no_second_message_when_it_is_due(site: Site) -> None:
    await site.replica.api.enqueue(make_request(delay_seconds=600))
    await site.replica.api.advance(600)
    assert site.replica.proxy.counts.calls["SendMessage"] == 1
    held = await site.replica.api.claim()
    await site.replica.api.release(held, unstarted=True, delay_seconds=2 * HOUR)
    await site.replica.api.advance(2 * HOUR)
    assert site.replica.proxy.counts.calls["SendMessage"] == 1
    assert (await site.replica.api.claim()).job.attempt == 2


async def test_a_job_that_is_due_after_longer_gets_its_message_then(site: Site) -> None:
    await site.replica.api.enqueue(make_request(delay_seconds=2 * HOUR))
    assert site.replica.proxy.counts.calls["SendMessage"] == 0
    await site.replica.api.advance(2 * HOUR)
    held = await site.replica.api.claim()
    await site.replica.api.release(held, unstarted=True, delay_seconds=24 * HOUR)
    await site.replica.api.advance(24 * HOUR)
    assert (await site.replica.api.claim()).job.attempt == 2
