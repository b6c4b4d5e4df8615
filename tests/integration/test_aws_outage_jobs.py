"""AWS away for minutes and for hours: nothing that lives is run again, and what died is."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from airunner.aws.calls import Aws
from airunner.aws.wellness import Wellness
from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import AirunnerError
from airunner.domain.job import JobState, Outcome
from airunner.domain.retry import RetryPolicy
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.stores.aws.upkeep import reconcile
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import make_request, make_services
from tests.doubles.aws.dynamodb import ON_ITEMS
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.faults import Fault, FaultKind
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws_stores import BorrowLayout, options_of
from tests.support.http_client import HttpClient
from tests.support.quick_serving import serve_quickly

VISIBILITY = 20
SLACK = AwsStore.capabilities.redelivery_slack_seconds
# Less than the silence that counts as an outage, and more than a loop waits.
TICK = 4.0
MINUTES, HOURS = 600, 36_000
ON_MESSAGES = frozenset({
    "ChangeMessageVisibilityBatch",
    "DeleteMessageBatch",
    "GetQueueAttributes",
    "ReceiveMessage",
    "SendMessage",
    "SendMessageBatch",
})  # fmt: skip
OPERATIONS = {"dynamodb": ON_ITEMS, "sqs": ON_MESSAGES, "all": ON_ITEMS | ON_MESSAGES}
ONCE = RetryPolicy(first_seconds=0.001, attempts=1)


@dataclass(frozen=True, slots=True)
class Replica:
    """A server's services, and its own way to AWS."""

    proxy: StrictProxy
    store: AwsStore
    api: Api

    def cut_off(self, services: str) -> None:
        for operation in OPERATIONS[services]:
            self.proxy.faults.add(Fault(operation=operation, kind=FaultKind.RESET))

    def reconnect(self) -> None:
        self.proxy.faults.clear()

    @property
    def is_cut_off(self) -> bool:
        """Whether the table does not answer."""
        return FaultKind.RESET in self.proxy.faults.draw("GetItem")

    @property
    def wellness(self) -> Wellness:
        return self.store._parts._wellness

    async def ask(self) -> None:
        """Do what the loop does every second."""
        assert self.store.parts
        await self.store.parts.keep_well()

    async def look_after_jobs(self) -> Sequence[DequeuedJob]:
        """Do what a server does at any time: a pass of upkeep, and a dequeue of a worker that is idle."""
        with suppress(AirunnerError):
            await self.api.services.maintenance.run_once()
        claimed: Sequence[DequeuedJob] = ()
        with suppress(AirunnerError):
            claimed = await self.api.dequeue(max_jobs=10, visibility_seconds=VISIBILITY)
        await self.store._background_tasks.finish()
        return claimed


@dataclass(slots=True)
class Site:
    """Replicas on one set of tables and queues; both clocks move together."""

    aws: StrictAws
    emulator: EmulatorProcess
    layout: Layout
    stack: AsyncExitStack
    clock: ManualClock = field(default_factory=ManualClock)
    replicas: list[Replica] = field(default_factory=list)

    async def start(self) -> Replica:
        """Add one more replica."""
        proxy = await self.stack.enter_async_context(self.aws.proxy())
        connection = Aws(options_of(proxy.url), policy=ONCE)
        store = AwsStore(connection, self.layout, self.clock, short_poll_seconds=0)
        services = await self.stack.enter_async_context(make_services(store, self.clock))
        api = Api(jobs=services.jobs, events=services.events, clock=self.clock, services=services)
        self.replicas.append(Replica(proxy, store, api))
        await self.replicas[-1].ask()
        return self.replicas[-1]

    def jump(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.emulator.advance(seconds)

    async def live(
        self, seconds: float, beating: Sequence[DequeuedJob] = (), at: Replica | None = None
    ) -> None:
        """Let time pass as it does: replicas ask the table, holders beat at one of them."""
        await self.settle()
        for tick in range(int(seconds / TICK) + 1):
            self.tick()
            for held in beating if tick % 4 == 0 else ():
                await (at or self.replicas[0]).api.beat(held)
        self.emulator.advance(seconds)

    async def settle(self) -> None:
        """Wait until what hides messages has reached SQS: its clock shall not move on before."""
        for replica in self.replicas:
            await replica.store._background_tasks.finish()

    def tick(self) -> None:
        """Let a moment pass in which the table answers every replica that is not cut off from it."""
        self.clock.advance(TICK)
        for replica in self.replicas:
            if not replica.is_cut_off:
                replica.wellness.answered()

    async def endure(self, seconds: float, services: str, beating: Sequence[DequeuedJob]) -> None:
        """Let an outage last. Where the table answers, it does so all the time, and holders beat."""
        await self.settle()
        for replica in self.replicas:
            replica.cut_off(services)
        if services == "sqs":
            for held in beating:
                await self.replicas[0].api.beat(held, 43_200)
            for _ in range(int(seconds / TICK)):
                self.tick()
            await self.settle()
            self.emulator.advance(seconds)
            await self.replicas[0].look_after_jobs()
            for held in beating:
                await self.replicas[0].api.beat(held, VISIBILITY)
        else:
            self.jump(seconds)
            for replica in self.replicas:
                await replica.ask()
                await replica.look_after_jobs()
        for replica in self.replicas:
            replica.reconnect()


@pytest.fixture
async def site(
    strict_aws: StrictAws, emulator: EmulatorProcess, borrow_layout: BorrowLayout
) -> AsyncIterator[Site]:
    lent = await borrow_layout()
    # Upkeep looks at each queue and shard.
    layout = replace(lent, queues={QUEUE: lent.queues[QUEUE]}, listing_shards=1)
    async with AsyncExitStack() as stack:
        yield Site(strict_aws, emulator, layout, stack)


async def held_jobs(api: Api, *tries: int) -> list[DequeuedJob]:
    """Add jobs with so many tries each, and return them in this order, begun and heard of."""
    added = [await api.enqueue(make_request(max_attempts=count)) for count in tries]
    claimed = await api.dequeue(max_jobs=10, visibility_seconds=VISIBILITY)
    for held in claimed:
        await api.beat(held)
    return sorted(claimed, key=lambda held: added.index(held.job.job_id))


@pytest.mark.parametrize(
    ("services", "seconds"),
    [
        ("dynamodb", MINUTES),
        ("sqs", MINUTES),
        ("all", HOURS),
        # The same once more.
        pytest.param("dynamodb", HOURS, marks=pytest.mark.slow),
        pytest.param("sqs", HOURS, marks=pytest.mark.slow),
        pytest.param("all", MINUTES, marks=pytest.mark.slow),
    ],
)
async def test_an_outage_runs_nothing_again_that_lives(site: Site, services: str, seconds: float) -> None:
    old = await site.start()
    alive_once, alive, dead_once, dead = await held_jobs(old.api, 1, 3, 1, 3)
    living = [alive_once, alive]
    await site.endure(seconds, services, living)
    # Upkeep, idle workers and a server that was started meanwhile come before the holders' next beat.
    new = await site.start()
    again = [held for replica in (old, new) for held in await replica.look_after_jobs()]
    assert len(again) == (services == "sqs"), "only what the table knew of all the time"
    for held in living:
        await new.api.beat(held, VISIBILITY)
    await site.live(VISIBILITY + SLACK, [*living, *again])
    again += [held for replica in (new, old) for held in await replica.look_after_jobs()]
    assert [(held.job.job_id, held.job.attempt) for held in again] == [(dead.job.job_id, 2)]
    lost = (await old.api.job(dead_once)).life
    assert (lost.state, lost.result and lost.result.outcome) == (JobState.FAILED, Outcome.LOST)
    for held in living:
        assert (await old.api.job(held)).attempt == 1
        assert await old.api.complete(held) is JobState.COMPLETED


async def test_a_replica_that_was_cut_off_alone_leaves_lapses_to_the_others(site: Site) -> None:
    lonely, other = await site.start(), await site.start()
    alive, dead = await held_jobs(lonely.api, 1, 3)
    lonely.cut_off("all")
    await site.live(VISIBILITY + SLACK, [alive], at=other)
    lonely.reconnect()
    await lonely.ask()
    assert await lonely.look_after_jobs() == []
    (again,) = await other.look_after_jobs() or await other.look_after_jobs()
    assert (again.job.job_id, again.job.attempt) == (dead.job.job_id, 2)
    assert (await lonely.api.job(alive)).attempt == 1
    assert await lonely.api.complete(alive) is JobState.COMPLETED


async def test_a_replica_that_has_just_started_leaves_a_message_for_the_others(site: Site) -> None:
    old = await site.start()
    (dead,) = await held_jobs(old.api, 3)
    # Its message shows after its visibility, long before the index says that somebody shall look.
    await site.live(VISIBILITY + 20)
    new = await site.start()
    assert await new.look_after_jobs() == []
    await site.live(VISIBILITY + 10)
    (again,) = await old.api.dequeue(visibility_seconds=VISIBILITY)
    assert (again.job.job_id, again.job.attempt) == (dead.job.job_id, 2)


async def test_lapses_that_are_put_off_hold_up_no_other_job(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconcile, "_AT_ONCE", 1)
    monkeypatch.setattr(reconcile, "_PAGES", 2)
    replica = await site.start()
    await replica.api.enqueue_many(3)
    assert len(await replica.api.dequeue(max_jobs=3, visibility_seconds=MINUTES)) == 3
    # An outage. So many jobs wait for their holders then that a pass ends before it has seen all.
    site.jump(MINUTES + SLACK)
    await replica.ask()
    replica.proxy.faults.next("SendMessage", FaultKind.SERVER_ERROR)
    unsent = await replica.api.enqueue()
    await site.live(SLACK)
    claimed = [held for _ in range(3) for held in await replica.look_after_jobs()]
    assert [held.job.job_id for held in claimed] == [unsent]


@pytest.mark.parametrize("kind", [FaultKind.THROTTLE, FaultKind.SERVER_ERROR, FaultKind.RESET])
async def test_calls_that_fail_beside_answers_put_nothing_off(site: Site, kind: FaultKind) -> None:
    replica = await site.start()
    (dead,) = await held_jobs(replica.api, 3)
    for _ in range(int((VISIBILITY + SLACK) / TICK) + 1):
        replica.proxy.faults.next("GetItem", kind)
        await replica.ask()
        site.jump(TICK / 2)
        await replica.ask()
        site.jump(TICK / 2)
    (again,) = await replica.look_after_jobs() or await replica.look_after_jobs()
    assert (again.job.job_id, again.job.attempt) == (dead.job.job_id, 2)


async def test_a_cancelled_job_is_not_ended_while_its_holder_cannot_be_heard(site: Site) -> None:
    replica = await site.start()
    alive, dead = await held_jobs(replica.api, 3, 3)
    for held in (alive, dead):
        await replica.api.jobs.cancel_job(held.job.job_id)
    await site.endure(MINUTES, "all", [])
    await replica.look_after_jobs()
    assert {(await replica.api.job(held)).state for held in (alive, dead)} == {JobState.RUNNING}
    assert (await replica.api.beat(alive, VISIBILITY)).cancel_requested
    await site.live(VISIBILITY + SLACK, [alive])
    await replica.look_after_jobs()
    assert (await replica.api.job(dead)).state is JobState.CANCELLED
    assert await replica.api.complete(alive) is JobState.COMPLETED


async def test_readiness_is_that_the_tables_answer_and_shows_all_else(site: Site) -> None:
    replica = await site.start()
    assert replica.store.parts
    await replica.store.parts.ask_next()
    async with serve_quickly(replica.api.services) as url:
        assert await page(f"{url}/readyz") == (200, {"status": "ok", "parts": {f"queue {QUEUE}": "ok"}})
        replica.cut_off("sqs")
        await replica.store.parts.ask_next()
        site.clock.advance(2)
        shown = {"parts": {f"queue {QUEUE}": "does not answer"}}
        assert await page(f"{url}/readyz") == (200, {"status": "ok", **shown})
        replica.cut_off("dynamodb")
        site.clock.advance(2)
        status, body = await page(f"{url}/readyz")
        assert (status, body["status"]) == (503, "unavailable")
        assert f"The table {site.layout.jobs_table} does not answer." in body["reason"]
        for _ in range(5):
            site.clock.advance(60)
            await until(lambda: not replica.api.services.stuck_loops)
            assert await page(f"{url}/healthz") == (200, {"status": "ok"})


async def page(url: str) -> tuple[int, dict[str, Any]]:
    answer = await HttpClient().get(url)
    return answer.status, json.loads(answer.content)
