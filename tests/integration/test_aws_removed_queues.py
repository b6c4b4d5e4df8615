"""Queues that were taken out of the settings while they had jobs: these are looked after all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import structlog

from airunner import telemetry
from airunner.domain.answers import QueueStats
from airunner.domain.errors import FailedPrecondition, InvalidArgument, JobNotFound, Unavailable
from airunner.domain.job import JobState, Outcome
from airunner.domain.listing import JobQuery
from airunner.services.composition import ServiceRules
from airunner.stores.aws.layout import Layout, queue_key
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import QUEUE, Api
from airunner.testing.factories import NEVER_SECONDS, make_batch, make_request, make_services
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_stores import BorrowLayout, make_store
from tests.support.scraping import Change, gauge_value

pytest_plugins = ("tests.support.aws",)

OTHER = "other"
RULES = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)


class Servers:
    """Servers on one set of tables, with one queue or two."""

    def __init__(self, url: str, layout: Layout) -> None:
        self.url = url
        self.layout = layout
        self.clock = ManualClock()

    @asynccontextmanager
    async def serve(self, *queues: str) -> AsyncIterator[Api]:
        layout = replace(self.layout, queues={queue: self.layout.queues[queue] for queue in queues})
        async with make_services(make_store(self.url, layout, self.clock), self.clock, RULES) as services:
            yield Api(jobs=services.jobs, events=services.events, clock=self.clock, services=services)


@pytest.fixture
async def servers(aws: StrictProxy, borrow_layout: BorrowLayout) -> Servers:
    return Servers(aws.url, await borrow_layout())


async def test_their_jobs_are_shown_counted_and_warned_of(servers: Servers) -> None:
    async with servers.serve(QUEUE, OTHER) as before:
        held = await before.new_claim()
        waiting = await before.enqueue()
    with structlog.testing.capture_logs() as logs:
        async with servers.serve(OTHER) as api:
            assert gauge_value(telemetry.queue_unconfigured, QUEUE) == 1
            for query in (JobQuery(), JobQuery(queue=QUEUE)):
                jobs = (await api.jobs.list_jobs(query)).jobs
                assert {job.job_id for job in jobs} == {waiting, held.job.job_id}
            (queue,) = await api.jobs.list_queues()
            assert (queue.name, queue.scheduled, queue.running) == (QUEUE, 1, 1)
            with pytest.raises(InvalidArgument):
                await api.jobs.list_jobs(JobQuery(queue="unheard-of"))
    warned = [(entry["queue"], entry["log_level"]) for entry in logs if "not_configured" in entry["event"]]
    assert warned == [(QUEUE, "warning")]
    # Once nothing is open there, it is of no interest any more.
    async with servers.serve(OTHER) as api:
        for job_id in (waiting, held.job.job_id):
            await api.jobs.cancel_job(job_id)
        await api.lapse(300)
        await api.advance(600)
        assert gauge_value(telemetry.queue_unconfigured, QUEUE) == 0
        assert await api.jobs.list_queues() == []
    with structlog.testing.capture_logs() as logs:
        async with servers.serve(OTHER) as api:
            assert len((await api.jobs.list_jobs(JobQuery())).jobs) == 2
    assert not [entry for entry in logs if "not_configured" in entry["event"]]


async def test_holders_go_on_to_the_end_and_nobody_begins_anew(servers: Servers) -> None:
    async with servers.serve(QUEUE, OTHER) as before:
        await before.enqueue_many(2)
        ends, gives_back = await before.dequeue(max_jobs=2)
        waiting = await before.enqueue()
    failed = Change(telemetry.aws_follow_ups_failed)
    async with servers.serve(OTHER) as api:
        await api.beat(ends)
        await api.publish(ends, make_batch(1, 3))
        assert await api.complete(ends) is JobState.COMPLETED
        assert await api.release(gives_back) is JobState.SCHEDULED
        assert (await api.job(ends)).state is JobState.COMPLETED
        assert (await api.jobs.cancel_job(waiting)).state is JobState.CANCELLED
        for call in (api.enqueue(), api.dequeue()):
            with pytest.raises(InvalidArgument, match="not configured"):
                await call
    assert failed() == 0


async def test_what_lapsed_ends_what_waits_rests_and_what_ended_is_purged(
    servers: Servers, aws: StrictProxy
) -> None:
    async with servers.serve(QUEUE, OTHER) as before:
        lost = await before.new_claim(make_request(max_attempts=1))
        await before.beat(lost)
        waiting = await before.enqueue()
    async with servers.serve(OTHER) as api:
        await api.lapse(300)
        job = await api.job(lost)
        assert (job.state, job.result and job.result.outcome) == (JobState.FAILED, Outcome.LOST)
        # Whoever has the queue is given time to send first; then every pass would find it in vain.
        aws.counts.reset()
        await api.advance(6 * 3600 - 300)
        assert aws.counts.calls["UpdateItem"] == 0
        await api.advance(300)
        assert aws.counts.calls["UpdateItem"] == 1
        await api.advance(30)
        assert (aws.counts.calls["UpdateItem"], aws.counts.calls["SendMessage"]) == (1, 0)
        await api.advance(8 * 24 * 3600)
        with pytest.raises(JobNotFound):
            await api.job(lost)
        assert (await api.jobs.get_job(waiting)).state is JobState.SCHEDULED
    async with servers.serve(QUEUE) as after:
        await after.advance(3600)
        assert (await after.claim()).job.job_id == waiting


async def test_queues_of_an_older_server_are_found(servers: Servers) -> None:
    async with servers.serve(QUEUE, OTHER) as before:
        await before.enqueue()
        await before.enqueue(queue=OTHER)
    async with client("dynamodb", servers.url) as dynamodb:
        for queue in (QUEUE, OTHER):
            await dynamodb.update_item(
                TableName=servers.layout.jobs_table,
                Key={"job_id": {"S": queue_key(queue)}},
                UpdateExpression="REMOVE list_key, order_key",
            )
    # One that is configured is noted at the start; one that was is found by its name.
    async with servers.serve(OTHER) as api:
        assert [queue.name for queue in await api.jobs.list_queues()] == [OTHER]
        assert len((await api.jobs.list_jobs(JobQuery(queue=QUEUE))).jobs) == 1
        assert [queue.name for queue in await api.jobs.list_queues()] == [QUEUE, OTHER]
    async with servers.serve("third") as api:
        queues: list[QueueStats] = [*await api.jobs.list_queues()]
        assert [queue.name for queue in queues] == [QUEUE, OTHER]


async def test_a_table_that_is_away_at_the_start_is_looked_at_later(
    servers: Servers, aws: StrictProxy
) -> None:
    async with servers.serve(QUEUE, OTHER) as before:
        await before.enqueue()
    aws.faults.next("Query", FaultKind.SERVER_ERROR, times=4)
    async with servers.serve(OTHER) as api:
        assert await api.jobs.list_queues() == []
        aws.faults.clear()
        await api.advance(30)
        assert [queue.name for queue in await api.jobs.list_queues()] == [QUEUE]


async def test_a_queue_that_sqs_does_not_have_is_named(servers: Servers) -> None:
    absent = replace(servers.layout, queues={"absent": ""})
    with pytest.raises(FailedPrecondition, match=r"SQS has no queue airunner-.*-absent"):
        await make_store(servers.url, absent, servers.clock).open()
    address = servers.layout.queues[QUEUE].rpartition("/")[0] + "/deleted"
    servers.layout = replace(servers.layout, queues={"gone": address})
    async with servers.serve("gone") as api:
        job_id = await api.enqueue(queue="gone")
        assert (await api.jobs.get_job(job_id)).state is JobState.SCHEDULED
        with pytest.raises(Unavailable, match="queue gone does not exist in SQS"):
            await api.dequeue(queue="gone")


async def test_a_list_of_all_queues_is_warned_of_once_a_minute(servers: Servers) -> None:
    async with servers.serve(QUEUE, OTHER) as api:
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                await api.jobs.list_jobs(JobQuery())
            servers.clock.advance(60)
            await api.jobs.list_jobs(JobQuery())
    assert [entry["event"] for entry in logs] == ["aws.list_all"] * 2
