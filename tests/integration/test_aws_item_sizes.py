"""How large items are: what a write costs goes by the kilobyte, and docs/aws-costs.md counts on these."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from airunner.codec.events import admit_events, event_to_packed_pb
from airunner.domain.batching import Batcher
from airunner.domain.event import StreamType
from airunner.domain.execution import BatchingConfig
from airunner.domain.job import JobParams
from airunner.stores.aws.items import event_item
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import Api
from airunner.testing.factories import NOON, make_batch, make_request, make_services, make_success
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_stores import BorrowLayout, make_store

pytest_plugins = ("tests.support.aws",)

UNIT = 1024
LINES = 10_000


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
    sizes = [item_size(event_item(job_id, event, NOON)) for event in admit_events(packed, NOON)]
    assert len(sizes) == LINES / 50
    assert UNIT / 4 < max(sizes) < UNIT


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
