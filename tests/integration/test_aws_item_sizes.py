"""How large items are: what a write costs goes by the kilobyte, and pages count on these."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airunner.aws.calls import Aws
from airunner.codec.events import admit_events, event_to_packed_pb
from airunner.domain.batching import Batcher
from airunner.domain.event import StreamType
from airunner.domain.execution import BatchingConfig
from airunner.domain.job import JobParams
from airunner.fleet.aws.layout import FleetLayout, fleet_resources
from airunner.fleet.aws.records import DynamoDbRecords
from airunner.fleet.aws.slots import DynamoDbSlots
from airunner.fleet.messages.housekeeping import HousekeepingMessage, TaskType
from airunner.fleet.records import ActionKind, HousekeepingRun, PoolAudit, RecordedAction, RunOutcome
from airunner.stores.aws.items import event_item
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import NOON, make_batch, make_request, make_services, make_success
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_stores import BorrowLayout, make_store, options_of

pytest_plugins = ("tests.support.aws",)

UNIT = 1024
LINES = 10_000
INSTANCE = "i-0123456789abcdef0"
FLEET_PAGE = Path(__file__).parents[2] / "docs" / "fleet-setup.md"


class Deployment:
    """A platform on AWS, and the items of its jobs table."""

    def __init__(self, api: Api, table: str, url: str) -> None:
        self.api = api
        self._table = table
        self._url = url

    async def sizes(self) -> dict[str, int]:
        async with client("dynamodb", self._url) as dynamodb:
            answer = await dynamodb.scan(TableName=self._table)
        return {item["job_id"]["S"].partition("#")[0]: item_size(item) for item in answer["Items"]}


@pytest.fixture
async def deployment(aws: StrictProxy, borrow_layout: BorrowLayout) -> AsyncIterator[Deployment]:
    clock, layout = ManualClock(), await borrow_layout()
    async with make_services(make_store(aws.url, layout, clock), clock) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        yield Deployment(api, layout.jobs_table, aws.url)


async def test_the_row_of_a_small_job_is_one_unit_to_its_end(deployment: Deployment) -> None:
    params = JobParams(command="python", args=("build.py", "--target", "release"), environment={"CI": "true"})
    job_id = await deployment.api.enqueue(make_request(params=params))
    sizes = [await deployment.sizes()]
    (held,) = await deployment.api.dequeue(worker_id="build-worker-17-4711")
    await deployment.api.publish(held, make_batch(1, 50))
    sizes.append(await deployment.sizes())
    await deployment.api.complete(held, make_success(final_sequence=50, output_json='{"artefacts": 3}'))
    sizes.append(await deployment.sizes())
    assert [size["request"] < UNIT / 4 for size in sizes] == [True] * 3
    assert [UNIT / 4 < size[job_id] < UNIT * 3 / 4 for size in sizes] == [True] * 3


async def test_a_readable_row_is_one_unit_or_two_whatever_its_parameters(
    aws: StrictProxy, borrow_layout: BorrowLayout
) -> None:
    clock, layout = ManualClock(), await borrow_layout()
    async with make_services(make_store(aws.url, layout, clock, row_format=2), clock) as services:
        api = Api(jobs=services.jobs, events=services.events, clock=clock, services=services)
        deployment, sizes = Deployment(api, layout.jobs_table, aws.url), []
        for size in (100, 470, 4_000):
            job_id = await api.enqueue(make_request(params=JobParams(command="python", args=("x" * size,))))
            (held,) = await api.dequeue(worker_id="build-worker-17-4711")
            await api.publish(held, make_batch(1, 50))
            await api.complete(held, make_success(final_sequence=50, output_json='{"artefacts": 3}'))
            sizes.append((await deployment.sizes())[job_id])
    small, full, beside = sizes
    assert max(small, beside) < UNIT
    assert UNIT < full < UNIT * 3 / 2


def test_fifty_lines_of_a_log_are_one_unit() -> None:
    lines = [
        b"%06d 2026-11-15T11:00:00Z INFO step %d of the build did what it had to do, in %d ms\n"
        % (number, number % 97, number * 7919 % 1000)
        for number in range(LINES)
    ]
    batcher = Batcher(BatchingConfig())
    flushes = [*batcher.add_output(lines, StreamType.STDOUT, NOON), *batcher.close(NOON)]
    packed = [event_to_packed_pb(event) for flush in flushes for event in flush.events]
    job_id = make_request().request_id
    sizes = [item_size(event_item(job_id, event, NOON, "0" * 16)) for event in admit_events(packed, NOON)]
    assert len(sizes) == LINES / 50
    assert UNIT / 4 < max(sizes) < UNIT


async def test_the_items_of_a_fleet_are_as_large_as_its_page_says(
    emulator: EmulatorProcess, aws_env: str
) -> None:
    layout = FleetLayout(env=aws_env)
    async with Aws(replace(options_of(emulator.url), clients=("dynamodb",))) as aws:
        for table in fleet_resources(layout).tables:
            await aws.dynamodb("CreateTable", **table.creation)
        records, slots = DynamoDbRecords(aws, layout), DynamoDbSlots(aws, layout)
        await records.assign(INSTANCE, "builds", NOON)
        await records.count_once(make_request().request_id, "1", NOON, by="0123456789abcdef")
        for actions in (0, 10):
            await records.put_run(make_run(actions))
        await slots.claim(make_run(0).slot, NOON, stale_before=0, new=True)
        await slots.mark_sent(make_run(0).slot, NOON)
        await records.put_audits([make_audit()])
        answer = await aws.dynamodb("Scan", TableName=layout.fleet_table)
    sizes = {item["record_id"]["S"]: item_size(item) for item in answer["Items"]}
    found = {key.partition("#")[0]: size for key, size in sizes.items()}
    empty, full = (sizes[f"run#{make_run(actions).slot}"] for actions in (0, 10))
    found |= {"run": empty, "action": (full - empty) // 10}
    said = re.findall(r"(\d+) bytes <!-- (\w+) -->", FLEET_PAGE.read_text())
    # To the nearest ten.
    assert {kind: int(size) for size, kind in said} == {kind: round(size, -1) for kind, size in found.items()}


def make_run(actions: int) -> HousekeepingRun:
    task, at = TaskType.ORPHANED_INSTANCES, NOON + actions
    why = "it was launched 6 h 30 min ago, has no running job, and was not assigned since"
    seen = "running, launched at 2023-11-14T05:40:00.000Z, assigned at 2023-11-14T05:41:00.000Z, not draining"
    action = RecordedAction(kind=ActionKind.MARKED, target=INSTANCE, why=why, seen=seen, at=NOON)
    return HousekeepingRun(
        slot=HousekeepingMessage(task_type=task, timestamp=at).slot,
        task_type=task,
        started_at=at,
        ended_at=at + 1000,
        outcome=RunOutcome.DONE,
        listed=100,
        changed=actions,
        actions=(action,) * actions,
    )


def make_audit() -> PoolAudit:
    return PoolAudit(
        pool="builds",
        audited_at=NOON,
        running=20,
        stopped=5,
        idle=3,
        seconds=3600.123,
        compute_cost_usd=2.016123,
        idle_cost_usd=0.302123,
    )


def item_size(item: dict[str, Any]) -> int:
    """Return what DynamoDB counts for an item: names, and values by their kind."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: dict[str, Any]) -> int:
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            return -(-len(content) // 2) + 1
        case "B":
            return len(content)
        case "L":
            return 3 + sum(1 + _value_size(part) for part in content)
        case "M":
            return 3 + sum(len(name.encode()) + 1 + _value_size(part) for name, part in content.items())
        case _:
            return 1
