"""Replicas of which one dies at a numbered call to AWS, and one lives on to find what it left."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from airunner.aws.calls import Aws
from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import AirunnerError
from airunner.domain.job import Job
from airunner.services.composition import Services
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import make_services
from tests.crash.witness import Witness
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws_stores import QUICK, make_resources, options_of

VISIBILITY_SECONDS = 60
# A message that was received and forgotten is back after this.
RECEIVED_SECONDS = 31


@dataclass(frozen=True, slots=True)
class Mortal:
    """The replica that dies. What it does in the next life it does with what it remembers of the last one.

    That is worse than death: a replica that was cut off may come back and believe what it knew.
    """

    proxy: StrictProxy
    store: AwsStore
    api: Api


@dataclass(frozen=True, slots=True)
class World:
    """One set of tables and queues, its two clocks, the replica that lives, and the witness of both."""

    aws: Aws
    emulator: EmulatorProcess
    layout: Layout
    clock: ManualClock
    survivor: Api
    mortal: Mortal
    witness: Witness

    async def pass_time(self, seconds: float) -> None:
        """Let jobs and messages age together; the survivor looks after them twice, as it would."""
        for _ in range(2):
            self.clock.advance(seconds)
            self.emulator.advance(seconds)
            await self.survivor.services.maintenance.run_once()

    async def let_lapse(self) -> None:
        """Let so much time pass that whatever nobody holds can be claimed."""
        slack = self.survivor.capabilities.redelivery_slack_seconds
        await self.pass_time(VISIBILITY_SECONDS + slack + 1)

    async def claims(self) -> list[DequeuedJob]:
        """Claim all that can be claimed now."""
        found: list[DequeuedJob] = []
        while more := await self.survivor.dequeue(max_jobs=10, visibility_seconds=VISIBILITY_SECONDS):
            found += more
        return found

    async def job(self, job_id: str) -> Job:
        return await self.survivor.jobs.get_job(job_id)

    async def items(self) -> list[str]:
        """The keys of all that is in the tables and that DynamoDB does not delete by itself one day."""
        tables = (self.layout.jobs_table, self.layout.events_table)
        answers = [await self.aws.dynamodb("Scan", TableName=table) for table in tables]
        return sorted(
            item["job_id"]["S"] for answer in answers for item in answer["Items"] if "ttl" not in item
        )

    async def judge(self, death: Death) -> None:
        """Fail if what the clients of both were told since the last judgement cannot be the truth."""
        if found := await self.witness.judge(self.survivor):
            pytest.fail("\n".join([f"{death}:", *found]))

    async def lose_messages(self) -> None:
        """Let SQS forget all that it has."""
        await self.aws.sqs("PurgeQueue", QueueUrl=self.layout.queues[QUEUE])


@dataclass(slots=True, repr=False)
class Death:
    """The mortal does one thing and dies at one call of it; or lives, if there are not as many calls."""

    mortal: Mortal
    at_call: int
    executed: bool
    happened: bool = False

    async def of(self, work: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        """Return what the replica answered, or the error that its client got in place of an answer."""
        faults = self.mortal.proxy.faults
        faults.die_after(self.at_call, executed=self.executed)
        try:
            answer = await work(self.mortal.api, *args, **options)
        except AirunnerError as error:
            answer = error
        await self.mortal.store._background_tasks.finish()
        self.happened = faults.is_dead
        faults.revive()
        return answer

    def __repr__(self) -> str:
        return f"dead {'after' if self.executed else 'before'} call {self.at_call}"


async def deaths(world: World) -> AsyncIterator[Death]:
    """Yield a death for each call that an operation makes, before it and after it; use each once.

    Whoever asks for the next one has ended all the jobs of the last: all that was seen of them is judged.
    """
    for executed in (False, True):
        for number in itertools.count(1):
            death = Death(world.mortal, number, executed)
            yield death
            await world.judge(death)
            if not death.happened:
                break


@asynccontextmanager
async def opened_world(aws: StrictAws, emulator: EmulatorProcess, env: str) -> AsyncIterator[World]:
    clock = ManualClock()
    async with aws.proxy() as safe, aws.proxy() as deadly, Aws(options_of(emulator.url)) as direct:
        made = await make_resources(safe.url, env)
        # Upkeep looks at each queue and shard.
        layout = replace(made, queues={QUEUE: made.queues[QUEUE]}, listing_shards=1)
        survivor = AwsStore(
            Aws(options_of(safe.url)), layout, clock, short_poll_seconds=0, watches_parts=False
        )
        mortal = AwsStore(
            Aws(options_of(deadly.url), policy=QUICK),
            layout,
            clock,
            short_poll_seconds=0,
            watches_parts=False,
        )
        witness = Witness()
        async with make_services(survivor, clock) as lasting, make_services(mortal, clock) as passing:
            yield World(
                direct,
                emulator,
                layout,
                clock,
                witness.accompany(_api(lasting, clock), "the survivor"),
                Mortal(deadly, mortal, witness.accompany(_api(passing, clock), "the mortal")),
                witness,
            )


def _api(services: Services, clock: ManualClock) -> Api:
    return Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
