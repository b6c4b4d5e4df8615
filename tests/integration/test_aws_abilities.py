"""Jobs on SQS that nobody at a server can do: their messages rest, and neither end nor pile up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

from airunner.aws.calls import Aws
from airunner.domain.answers import DequeuedJob
from airunner.domain.job import JobParams, JobState
from airunner.domain.requests import Abilities
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import make_request, make_services
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws_stores import BorrowLayout, make_store, options_of

COMMANDS = Abilities(commands=True)
RESIZE = Abilities(handlers=("resize",))
ALL_TRIES = 4
MANY = 12
LONGEST_REST_SECONDS = 60
HIDDEN_SECONDS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A server on the emulator, and SQS as an operator's console shows it."""

    api: Api
    proxy: StrictProxy
    emulator: EmulatorProcess
    layout: Layout
    sqs: Aws

    async def dequeue(self, abilities: Abilities, max_jobs: int = 1) -> Sequence[DequeuedJob]:
        """Dequeue without waiting, to the last call that follows from it."""
        held = await self.api.dequeue(abilities=abilities, max_jobs=max_jobs)
        store = self.api.services.store
        assert isinstance(store, AwsStore)
        await store._background_tasks.finish()
        return held

    def pass_time(self, seconds: float) -> None:
        """Let time pass for jobs and for messages."""
        self.api.clock.advance(seconds)
        self.emulator.advance(seconds)

    async def messages(self) -> list[int]:
        """Return how often each message that can be received was received."""
        answer = await self.sqs.sqs(
            "ReceiveMessage",
            QueueUrl=self.layout.queues[QUEUE],
            MaxNumberOfMessages=10,
            AttributeNames=["ApproximateReceiveCount"],
        )
        return [
            int(message["Attributes"]["ApproximateReceiveCount"]) for message in answer.get("Messages", [])
        ]


@pytest.fixture
async def site(
    aws: StrictProxy, emulator: EmulatorProcess, borrow_layout: BorrowLayout
) -> AsyncIterator[Site]:
    clock, layout = ManualClock(), await borrow_layout()
    async with make_services(make_store(aws.url, layout, clock), clock) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        async with Aws(options_of(emulator.url)) as sqs:
            yield Site(api=api, proxy=aws, emulator=emulator, layout=layout, sqs=sqs)


def resize(filling: str = "") -> JobParams:
    return JobParams(handler="resize", metadata={"filling": filling} if filling else {})


async def test_a_message_is_never_received_so_often_that_it_becomes_a_dead_letter(site: Site) -> None:
    job_id = await site.api.enqueue(make_request(params=resize()))
    for _ in range(MANY):
        assert await site.dequeue(COMMANDS) == []
        site.pass_time(LONGEST_REST_SECONDS)
    life = (await site.api.jobs.get_job(job_id)).life
    assert (life.state, life.attempt, life.handed_back) == (JobState.SCHEDULED, 0, 0)
    assert await site.messages() == [1]
    site.pass_time(HIDDEN_SECONDS)
    (held,) = await site.dequeue(RESIZE)
    assert (held.job.job_id, held.job.attempt) == (job_id, 1)


async def test_the_longer_a_job_has_waited_the_longer_it_rests(site: Site) -> None:
    waited = 0
    job_id = await site.api.enqueue(make_request(params=resize()))
    for age, rest in ((0, 1), (10, 5), (40, 20), (600, LONGEST_REST_SECONDS)):
        site.pass_time(age - waited)
        waited = age
        assert await site.dequeue(COMMANDS) == []
        # A little before, and a little after.
        site.emulator.advance(rest - 0.5)
        assert await site.dequeue(RESIZE) == []
        site.emulator.advance(0.6)
        (held,) = await site.dequeue(RESIZE)
        await site.api.release(held, unstarted=True)
        # A release makes it due anew.
        waited = 0
    assert (await site.api.jobs.get_job(job_id)).life.tries_left == 3


async def test_messages_of_a_job_that_waits_for_days_do_not_pile_up(site: Site) -> None:
    await site.api.enqueue(make_request(params=resize()))
    for _ in range(5):
        assert await site.dequeue(COMMANDS) == []
        site.pass_time(2 * 3600)
        await site.api.services.maintenance.run_once()
    assert len(await site.messages()) == 1


async def test_what_cannot_be_sent_again_shows_by_itself(site: Site) -> None:
    job_id = await site.api.enqueue(make_request(params=resize()))
    site.proxy.faults.next("SendMessage", FaultKind.THROTTLE, times=ALL_TRIES)
    assert await site.dequeue(COMMANDS) == []
    assert await site.dequeue(RESIZE) == []
    site.emulator.advance(HIDDEN_SECONDS + 1)
    assert [held.job.job_id for held in await site.dequeue(RESIZE)] == [job_id]


@pytest.mark.parametrize("filling", ["", "x" * 5_000], ids=["in the row", "beside it"])
async def test_a_row_of_an_earlier_version_says_it_in_its_parameters(site: Site, filling: str) -> None:
    job_id = await site.api.enqueue(make_request(params=resize(filling)))
    await site.sqs.dynamodb(
        "UpdateItem",
        TableName=site.layout.jobs_table,
        Key={"job_id": {"S": job_id}},
        UpdateExpression="REMOVE #handler",
        ExpressionAttributeNames={"#handler": "handler"},
    )
    assert await site.dequeue(COMMANDS) == []
    site.emulator.advance(2)
    assert [held.job.job_id for held in await site.dequeue(RESIZE)] == [job_id]


async def test_one_call_goes_through_some_messages_that_it_cannot_do_and_then_waits_its_turn(
    site: Site,
) -> None:
    await site.api.jobs.enqueue_jobs([make_request(params=resize()) for _ in range(15)])
    before = site.proxy.counts.calls["ReceiveMessage"]
    assert await site.dequeue(COMMANDS) == []
    assert site.proxy.counts.calls["ReceiveMessage"] - before == 10


async def test_a_holder_that_comes_back_while_its_message_rests_is_looked_after(site: Site) -> None:
    await site.api.enqueue(make_request(params=resize()))
    held = await site.api.claim(visibility_seconds=10)
    site.pass_time(10 + HIDDEN_SECONDS)
    assert await site.dequeue(COMMANDS) == []
    await site.api.beat(held, 120)
    # Its message is found to be of no use, and there is no other.
    site.pass_time(LONGEST_REST_SECONDS)
    assert await site.dequeue(COMMANDS) == []
    site.pass_time(LONGEST_REST_SECONDS - 1)
    assert await site.messages() == []
    # Then the holder dies.
    site.pass_time(120 + site.api.capabilities.redelivery_slack_seconds)
    await site.api.services.maintenance.run_once()
    (again,) = await site.dequeue(RESIZE)
    assert again.job.attempt == 2


async def test_many_messages_that_nobody_can_do_are_gone_through_in_tens(site: Site) -> None:
    await site.api.jobs.enqueue_jobs([make_request(params=resize()) for _ in range(15)])
    added = [await site.api.enqueue() for _ in range(4)]
    before = site.proxy.counts.calls["ReceiveMessage"]
    (held,) = await site.api.dequeue(abilities=COMMANDS, wait_seconds=20)
    assert held.job.job_id in added
    assert site.proxy.counts.calls["ReceiveMessage"] - before < 10
    # What came with it is at hand for the next.
    before = site.proxy.counts.calls["ReceiveMessage"]
    (other,) = await site.api.dequeue(abilities=COMMANDS, wait_seconds=20)
    assert other.job.job_id in set(added) - {held.job.job_id}
    assert site.proxy.counts.calls["ReceiveMessage"] == before
