"""Two replicas that do not know the newest: rows as they were, reads that lag, clocks apart, late calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from airunner.domain.errors import SequenceMismatch
from airunner.domain.job import JobParams, JobState
from airunner.stores.aws.store import AwsStore
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import make_batch, make_line, make_request, make_services
from tests.doubles.aws.faults import Fault, FaultKind
from tests.doubles.aws.strict import StrictAws, StrictProxy
from tests.support.aws_stores import BorrowLayout, make_store

APART_SECONDS = 4
# More than a row holds itself.
LARGE = "x" * 5_000


class Replica:
    """A server's store and services, on a clock of its own; what befalls its calls is in `aws`."""

    def __init__(self, aws: StrictProxy, store: AwsStore, api: Api) -> None:
        self.aws = aws
        self.store = store
        self.api = api

    async def settled(self) -> None:
        """Return once all that follows from the calls so far is done."""
        await self.store._background_tasks.finish()


@pytest.fixture
async def replicas(
    aws: StrictProxy, strict_aws: StrictAws, borrow_layout: BorrowLayout
) -> AsyncIterator[tuple[Replica, Replica]]:
    """Two replicas; the clock of the second is ahead of the other by what is tolerable."""
    layout = await borrow_layout()
    clocks = ManualClock(), ManualClock()
    clocks[1].step(APART_SECONDS)
    async with strict_aws.proxy() as second_aws:
        first, second = (
            make_store(proxy.url, layout, clock)
            for proxy, clock in zip((aws, second_aws), clocks, strict=True)
        )
        async with make_services(first, clocks[0]) as one, make_services(second, clocks[1]) as other:
            yield (
                Replica(aws, first, Api(jobs=one.jobs, events=one.events, clock=clocks[0], services=one)),
                Replica(
                    second_aws,
                    second,
                    Api(jobs=other.jobs, events=other.events, clock=clocks[1], services=other),
                ),
            )


def pass_time(replicas: tuple[Replica, Replica], seconds: float) -> None:
    for replica in replicas:
        replica.api.clock.advance(seconds)


async def test_a_replica_whose_clock_is_ahead_takes_no_job_that_is_held(
    replicas: tuple[Replica, Replica],
) -> None:
    holding, other = replicas
    holding.aws.faults.next("ReceiveMessage", FaultKind.DUPLICATE)
    held = await holding.api.new_claim(visibility_seconds=60)
    # By the other's clock the visibility is over, and the message comes a second time.
    pass_time(replicas, 60 - APART_SECONDS + 1)
    assert await other.api.dequeue() == []
    await other.settled()
    assert (await holding.api.beat(held)).visible_until == holding.api.clock.now() + 60_000
    assert await holding.api.complete(held) is JobState.COMPLETED


async def test_a_lost_job_is_there_again_15_seconds_after_its_visibility(
    replicas: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its message comes so late that no clock holds the job any more, and nobody has to look after it."""
    holding, other = replicas
    hidden = overhear_visibilities(holding.store, monkeypatch)
    holding.aws.faults.next("ReceiveMessage", FaultKind.DUPLICATE)
    held = await holding.api.new_claim(visibility_seconds=60)
    await holding.settled()
    assert hidden == [75]
    await holding.api.beat(held, seconds=100)
    await holding.settled()
    assert hidden == [75, 115]
    pass_time(replicas, 115)
    (again,) = await other.api.dequeue()
    assert (again.job.job_id, again.job.attempt) == (held.job.job_id, 2)


def overhear_visibilities(store: AwsStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the seconds for which messages are hidden from now on."""
    hidden: list[int] = []
    sqs = store._aws.sqs

    async def overheard(operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "ChangeMessageVisibilityBatch":
            hidden.extend(entry["VisibilityTimeout"] for entry in arguments["Entries"])
        return await sqs(operation, **arguments)

    monkeypatch.setattr(store._aws, "sqs", overheard)
    return hidden


async def test_a_row_that_is_remembered_wrongly_removes_no_event_that_is_seen(
    replicas: tuple[Replica, Replica],
) -> None:
    first, second = replicas
    held = await first.api.new_claim()
    await first.api.publish(held, make_line(1))
    await second.api.publish(held, make_batch(2, 3))
    # The worker did not hear of that, and cuts its lines otherwise: for the first, they are new.
    with pytest.raises(SequenceMismatch) as refused:
        await first.api.publish(held, make_batch(2, 5))
    assert refused.value.expected == 4
    assert await second.api.stored(held.job.job_id) == [(1, 1), (1, 2), (1, 3)]
    await first.api.publish(held, make_batch(4, 5))
    assert await second.api.stored(held.job.job_id) == [(1, sequence) for sequence in range(1, 6)]


async def test_a_mark_that_is_late_does_not_hide_a_claim_from_the_reconciler(
    replicas: tuple[Replica, Replica],
) -> None:
    """The mark says that a look in six hours is soon enough; meanwhile there is a holder to be watched."""
    enqueuing, other = replicas
    await enqueuing.api.complete(await enqueuing.api.new_claim())  # the queue is known to be used
    await enqueuing.settled()
    marked = enqueuing.aws.counts.calls["UpdateItem"]
    enqueuing.aws.faults.next("UpdateItem", FaultKind.DELAY)
    job_id = await enqueuing.api.enqueue()
    await until(lambda: enqueuing.aws.counts.calls["UpdateItem"] == marked + 1)
    held = await other.api.claim()
    assert held.job.job_id == job_id
    enqueuing.aws.faults.release()
    await enqueuing.settled()
    # The holder is lost, and so is its message.
    pass_time(replicas, 60)
    await other.api.lapse(0)
    assert (await other.api.claim()).job.attempt == 2


async def test_reads_that_lag_change_nothing(replicas: tuple[Replica, Replica]) -> None:
    """Whatever decides is read consistently: otherwise none of this would be found yet."""
    replica, _ = replicas
    replica.aws.faults.add(Fault(kind=FaultKind.STALE_READ))
    params = JobParams(command="make", environment={"PAD": LARGE})
    held = await replica.api.new_claim(make_request(params=params))
    assert held.job.params == params
    assert (await replica.api.job(held)).params == params
    await replica.api.publish(held, make_batch(1, 3))
    assert await replica.api.stored(held.job.job_id) == [(1, 1), (1, 2), (1, 3)]
    await replica.api.jobs.cancel_job(held.job.job_id)
    assert (await replica.api.beat(held)).cancel_requested
    await replica.api.release(held)
    assert (await replica.api.job(held)).state is JobState.CANCELLED
    await replica.api.jobs.set_paused("builds", paused=True)
    await replica.api.enqueue()
    assert await replica.api.dequeue() == []


async def test_one_request_at_two_servers_at_once_is_one_job(replicas: tuple[Replica, Replica]) -> None:
    for _ in range(5):
        request = make_request()
        ids = await asyncio.gather(*(replica.api.enqueue(request) for replica in replicas * 4))
        assert len(set(ids)) == 1


async def test_of_two_messages_for_one_job_the_spare_one_is_deleted(
    replicas: tuple[Replica, Replica],
) -> None:
    replica, _ = replicas
    request = make_request()
    assert await replica.api.enqueue(request) == await replica.api.enqueue(request)  # which sends again
    await replica.settled()
    replica.aws.counts.reset()
    assert len(await replica.api.dequeue(max_jobs=2)) == 1
    await replica.settled()
    assert replica.aws.counts.calls["DeleteMessageBatch"] == 1
