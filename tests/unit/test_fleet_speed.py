"""What the work of a fleet costs, counted in calls: on a model of AWS in virtual time, and on fakes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import AirunnerError
from airunner.domain.requests import DequeueRequest
from airunner.domain.splitting import split_by_count
from airunner.domain.token import TokenSigner
from airunner.fleet.aws.layout import FleetLayout, fleet_resources
from airunner.fleet.aws.records import DynamoDbRecords
from airunner.fleet.consuming import fleet_consumer
from airunner.fleet.dependencies import Dependencies
from airunner.fleet.housekeeping.old_jobs import PurgedOldJobs
from airunner.fleet.housekeeping.orphaned_instances import OrphanedInstances
from airunner.fleet.lease import TaskLease
from airunner.fleet.messages.housekeeping import TaskType
from airunner.fleet.messages.termination import (
    EndStatus,
    TerminationMessage,
    format_termination,
    parse_termination,
)
from airunner.fleet.records import Instance, InstanceState
from airunner.fleet.task_run import TaskRun
from airunner.fleet.termination import CONCURRENCY, TerminationProcessor
from airunner.queues.messages import NewMessage
from airunner.queues.sqs import SqsQueue
from airunner.services.composition import ServiceRules, Services
from airunner.stores.aws import layout as shapes
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from airunner.stores.records import RunningJob, RunningPage
from airunner.testing.clock import ManualClock
from airunner.testing.factories import NEVER_SECONDS, make_request
from tests.doubles.aws.model.calls import ModelAws
from tests.doubles.aws.model.dynamodb import ModelDynamoDb
from tests.doubles.aws.model.sqs import ModelSqs
from tests.doubles.aws.model.tables import Table
from tests.doubles.aws.model.virtual_time import VirtualClock, run_in_virtual_time
from tests.doubles.aws.tables.throughput import Throughput
from tests.support.fleet import FakeInstances, FakeParameters, FakeRecords

SIGNER = TokenSigner([b"a key of the tests"])
JOBS = 200
FED = 50
DAY_MS = 24 * 3600 * 1000


class WatchedDynamoDb(ModelDynamoDb):
    """Keeps the keys of what was updated, and counts the items that were read, the index aside."""

    def __init__(self, tables: Iterable[Table], throughput: Throughput) -> None:
        super().__init__(tables, throughput)
        self.updated: list[str] = []
        self.items_read = 0

    def get_item(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.items_read += 1
        return super().get_item(arguments)

    def batch_get_item(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.items_read += sum(len(request["Keys"]) for request in arguments["RequestItems"].values())
        return super().batch_get_item(arguments)

    def update_item(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.updated += [value["S"] for value in arguments["Key"].values() if "S" in value]
        return super().update_item(arguments)


@dataclass(frozen=True, slots=True)
class Counted:
    """The calls for all messages."""

    aws: Counter[str]
    updated: list[str]
    parameters: int


def test_a_termination_message_costs_two_reads_a_write_a_mark_and_a_delete() -> None:
    counted = run_in_virtual_time(closed_books)
    calls = counted.aws
    assert calls["get_item"] + calls["batch_get_item"] <= 2 * JOBS
    # The row of the job. After each end of a job, the item of its request learns when it expires.
    rows = [key for key in counted.updated if not key.startswith("request#")]
    assert len(rows) == len(set(rows)) == JOBS
    assert calls["transact_write_items"] == 0
    assert calls["put_item"] == JOBS
    assert counted.parameters == JOBS
    # Five that end together are deleted together, since each call takes its time.
    assert calls["delete_message_batch"] == JOBS / CONCURRENCY
    assert calls["receive_message"] <= JOBS / CONCURRENCY + 2 * JOBS / FED + 2


async def closed_books(clock: VirtualClock) -> Counted:
    """Process all messages, fed some at a time; return what was called meanwhile."""
    layout, fleet = Layout(env="model", queues={"default": "default"}), FleetLayout(env="model")
    tables = [*shapes.tables(layout), *(table.creation for table in fleet_resources(fleet).tables)]
    sqs = ModelSqs(lambda: clock.monotonic() / 1000)
    dynamodb = WatchedDynamoDb(map(Table, tables), Throughput(lambda: clock.monotonic() / 1000, scale=1e6))
    aws, ours = (ModelAws({"dynamodb": dynamodb, "sqs": sqs, "polls": sqs}, clock) for _ in range(2))
    rules = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
    servers = Services(AwsStore(aws, layout, clock, watches_parts=False), clock, SIGNER, rules)
    processor = Services(AwsStore(ours, layout, clock, watches_parts=False), clock, SIGNER, rules)
    async with servers, processor, ours:
        messages = [report_of(held, clock) for held in await begin_all(servers)]
        parameters, queue = FakeParameters(), SqsQueue(ours, "termination", clock=clock)
        before = Counter(ours.counts)
        dynamodb.updated.clear()
        await process(processor, ours, fleet, parameters, queue, messages, clock)
        spent = Counter(ours.counts)
        spent.subtract(before)
        return Counted(spent, dynamodb.updated, parameters.calls.count("delete"))


async def begin_all(servers: Services) -> list[DequeuedJob]:
    held: list[DequeuedJob] = []
    enqueued = await servers.jobs.enqueue_jobs([make_request("default") for _ in range(JOBS)])
    assert not [outcome for outcome in enqueued if isinstance(outcome, AirunnerError)]
    while len(held) < JOBS:
        request = DequeueRequest(
            queue="default", instance_id=f"i-{len(held)}", wait_seconds=5, visibility_timeout_seconds=43_200
        )
        found = await servers.jobs.dequeue_jobs(request)
        assert found
        held += found
    return held


async def process(
    services: Services,
    aws: ModelAws,
    fleet: FleetLayout,
    parameters: FakeParameters,
    queue: SqsQueue,
    messages: list[str],
    clock: VirtualClock,
) -> None:
    dependencies = Dependencies(clock)
    processor = TerminationProcessor(
        services.jobs,
        parameters,
        DynamoDbRecords(aws, fleet),
        SIGNER.terminations(),
        dependencies=dependencies,
        clock=clock,
    )
    consumer, source = fleet_consumer(
        queue,
        parse_termination,
        processor.process,
        dependencies=dependencies,
        clock=clock,
        concurrency=CONCURRENCY,
    )
    work = asyncio.create_task(consumer.run())
    for some in split_by_count(messages, FED):
        await queue.send([NewMessage(body=body) for body in some])
        give_up_at = clock.now() + 600_000
        while (await queue.depth()).visible or consumer.running:
            assert clock.now() < give_up_at
            await clock.sleep(0.5)
    consumer.stop()
    await work
    await source.finish()


def report_of(held: DequeuedJob, clock: VirtualClock) -> str:
    message = TerminationMessage(
        instance_id=held.job.life.instance_id,
        job_id=held.job.job_id,
        status=EndStatus.SUCCESS,
        exit_code=0,
        duration_seconds=1,
        started_at=clock.now(),
        completed_at=clock.now(),
        attempt=held.job.attempt,
        termination_token=held.termination_token,
    )
    return format_termination(message)


def test_old_jobs_are_purged_at_two_reads_a_record() -> None:
    purged, items_read = run_in_virtual_time(purged_jobs)
    assert purged == JOBS
    # Its row, and the item of its request; the index is read in pages.
    assert items_read == 2 * JOBS


async def purged_jobs(clock: VirtualClock) -> tuple[int, int]:
    """Let jobs end and grow old; return how many were purged, and how many items that took."""
    layout = Layout(env="model", queues={"default": "default"})
    dynamodb = WatchedDynamoDb(
        map(Table, shapes.tables(layout)), Throughput(lambda: clock.monotonic() / 1000, scale=1e6)
    )
    sqs = ModelSqs(lambda: clock.monotonic() / 1000)
    aws = ModelAws({"dynamodb": dynamodb, "sqs": sqs, "polls": sqs}, clock)
    store = AwsStore(aws, layout, clock, watches_parts=False)
    rules = ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
    async with Services(store, clock, SIGNER, rules) as services:
        enqueued = await services.jobs.enqueue_jobs([make_request("default") for _ in range(JOBS)])
        for outcome in enqueued:
            assert not isinstance(outcome, AirunnerError)
            await services.jobs.cancel_job(outcome.job_id)
    # Nothing turns meanwhile, or the time would take its time.
    await clock.sleep(8 * DAY_MS / 1000)
    await store.open()
    records = FakeRecords()
    lease = TaskLease(records, clock, TaskType.OLD_JOBS, "replica")
    await lease.take()
    before, run = dynamodb.items_read, TaskRun(clock, lease)
    await PurgedOldJobs(store, retention_ms=7 * DAY_MS).run(run)
    spent = dynamodb.items_read - before
    await store.close()
    return run.listed, spent


class CountedJobs:
    """Implements RunningJobs in pages, and counts them."""

    def __init__(self) -> None:
        self.pages = 0

    async def running_jobs(self, cursor: str = "") -> RunningPage:
        self.pages += 1
        number = int(cursor or 0)
        jobs = [RunningJob(f"job-{number}", 1, f"i-{number}")]
        return RunningPage(jobs=jobs, next_cursor=str(number + 1) if number < 2 else "")


async def swept(old: int) -> tuple[FakeInstances, FakeRecords, CountedJobs]:
    """Sweep a thousand instances, the first ones of which are old."""
    clock = ManualClock()
    instances = FakeInstances(
        *(
            Instance(
                instance_id=f"i-{number}",
                state=InstanceState.RUNNING,
                launched_at=clock.now() - (DAY_MS if number < old else 1000),
            )
            for number in range(1000)
        ),
        page_size=200,
    )
    records, jobs = FakeRecords(), CountedJobs()
    lease = TaskLease(records, clock, TaskType.ORPHANED_INSTANCES, "replica")
    await lease.take()
    await OrphanedInstances(instances, records, jobs).run(TaskRun(clock, lease))
    return instances, records, jobs


async def test_a_sweep_without_candidates_reads_no_row() -> None:
    instances, records, jobs = await swept(0)
    assert instances.calls == ["managed"] * 5
    assert (jobs.pages, records.calls) == (0, ["take_lease"])


async def test_a_sweep_with_candidates_walks_once_for_all_of_them() -> None:
    instances, records, jobs = await swept(100)
    assert instances.calls == ["managed"] * 5
    # One walk of three pages, one read of all records, and one write for each that is marked.
    assert jobs.pages == 3
    assert Counter(records.calls) == {"take_lease": 1, "read_instances": 1, "mark_draining": 97}
