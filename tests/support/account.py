"""The conformance suite on an account of AWS, by `make test-aws`: one set of tables and queues for all tests.

A plug-in of pytest, loaded by that target alone. What it makes is called after TEST_AWS_ENV, behind a
prefix, is emptied before each test and deleted at the end. Tests that move time are left out and counted: the
clock of an account is nobody's to move.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NoReturn

import pytest

from airunner.aws.calls import Aws, AwsOptions
from airunner.aws.errors import Refused
from airunner.aws.paging import Pages
from airunner.aws.provision import Resource, ResourceKind, provision
from airunner.domain.answers import DequeuedJob
from airunner.domain.clock import Clock, SystemClock
from airunner.domain.errors import AirunnerError
from airunner.stores.aws.layout import Layout, resources
from airunner.stores.aws.listing import ListingBounds
from airunner.stores.aws.store import AwsStore
from airunner.testing.clock import ManualClock
from airunner.testing.conformance.stores.backend import QUEUE, Api
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY
from tests.support.aws_stores import QUEUES, lent

ASKED_FOR: Final = "TEST_AWS_ENV"
"""The variable that names the environment; without it this module is not loaded."""
PREFIX: Final = "test-"
"""Before the name of every environment of ours, so that it is nobody's production."""

_LEFT_OUT: Final = "it moves time"
# Dollars for a million requests, list prices of us-east-1; one of DynamoDB counts as two write units.
_PRICES: Final = {"dynamodb": 2 * 0.625, "sqs": 0.40, "s3": 5.0}
# What a whole run asks for, a little more than was counted in a rehearsal.
_EXPECTED: Final = {"dynamodb": 5_000, "sqs": 2_000, "s3": 400}
# What SQS owes nobody: to deliver at once, and together, all that was sent.
_AT_ONCE: Final = frozenset({"test_a_waiting_call_takes_what_one_enqueue_brings"})
_PATIENCE_SECONDS: Final = 60.0


class StandingClock(ManualClock):
    """The time at which a test began. A test that moves it is left out."""

    def __init__(self) -> None:
        super().__init__(SystemClock().now())

    def advance(self, seconds: float) -> NoReturn:
        pytest.skip(_LEFT_OUT)

    def step(self, seconds: float) -> NoReturn:
        pytest.skip(_LEFT_OUT)


class CountedAws(Aws):
    """Counts requests by service, for all that a run costs."""

    requests: Counter[str] = Counter()  # noqa: RUF012  of all instances together

    async def _try(self, client: str, *arguments: Any) -> Any:
        self.requests["sqs" if client == "polls" else client] += 1
        return await super()._try(client, *arguments)


class PatientApi(Api):
    """Looks again for a job that must be there: a poll of the test before may have received its message."""

    async def claim(self, queue: str = QUEUE, *, visibility_seconds: int = 60) -> DequeuedJob:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not (held := await self.dequeue(queue, visibility_seconds=visibility_seconds)):
                await asyncio.sleep(1)
        (one,) = held
        return one


@dataclass(slots=True)
class Account:
    """The resources of one run."""

    options: AwsOptions
    layout: Layout
    made: Sequence[Resource] = ()
    _borrowed: bool = field(default=False)

    def store(self, more: Sequence[str], clock: Clock, bounds: ListingBounds) -> AwsStore:
        """Return a store on the one set of tables, with these names of queues beside the usual ones."""
        self._borrowed = True
        return AwsStore(
            CountedAws(self.options),
            lent(self.layout, more, bucket=True),
            clock,
            list_bounds=bounds,
        )

    async def prepare(self) -> None:
        """Make everything, or take over what a run that was interrupted has left."""
        async with self._opened() as aws:
            self.made = await provision(aws, resources(self.layout), SystemClock())
        urls = {each.queue: each.url for each in self.made if each.kind is ResourceKind.QUEUE}
        self.layout = replace(self.layout, queues=urls)
        self._borrowed = True
        await self.empty()

    async def empty(self) -> None:
        """Remove what a test has left. What is in flight comes back later, as messages of no job."""
        if not self._borrowed:
            return
        self._borrowed = False
        async with self._opened() as aws:
            used = await _empty_table(aws, self.layout.jobs_table, "job_id")
            await _empty_table(aws, self.layout.events_table, "job_id", "sequence")
            await _empty_bucket(aws, self.layout.bucket)
            known = {name.partition("#")[2] for name in used if name.startswith("queue#")}
            urls = {self.layout.queues.get(queue, self.layout.queues["more"]) for queue in known}
            await asyncio.gather(*(_drain(aws, url) for url in urls))

    async def remove(self) -> None:
        """Delete everything that was made; what fails is said, and the rest is deleted nevertheless."""
        async with self._opened() as aws:
            for resource in self.made:
                try:
                    await _delete(aws, resource)
                except AirunnerError as error:
                    print(f"still there: {resource.kind} {resource.name}: {error.text}")  # noqa: T201

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Aws]:
        async with CountedAws(self.options) as aws:
            yield aws


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if getattr(item, "originalname", "") not in _AT_ONCE]


def pytest_report_header() -> list[str]:
    place = os.environ.get("TEST_AWS_ENDPOINT") or "AWS itself"
    return [
        f"account: environment {PREFIX}{os.environ[ASKED_FOR]} on {place}: 2 tables, "
        f"{2 * (len(QUEUES) + 1)} queues and a bucket, deleted at the end",
        f"account: a whole run is about {_in_words(_EXPECTED)}",
    ]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    left_out = sum(_LEFT_OUT in str(report.longrepr) for report in skipped)
    terminalreporter.write_line(f"account: {left_out} tests that move time were left out")
    terminalreporter.write_line(f"account: this run was {_in_words(CountedAws.requests)}")


@pytest.fixture(scope="session")
def account() -> Iterator[Account]:
    """The tables, queues and bucket of this run."""
    env = f"{PREFIX}{os.environ[ASKED_FOR]}"
    layout = Layout(
        env=env,
        queues=dict.fromkeys((*QUEUES, "more"), ""),
        bucket=f"airunner-{env.lower().replace('_', '-')}-payloads",
        listing_shards=2,
    )
    made = Account(options=_options(layout.bucket), layout=layout)
    try:
        asyncio.run(made.prepare())
        yield made
    finally:
        asyncio.run(made.remove())


@pytest.fixture
def empty_account(account: Account) -> Account:
    """The same, empty, for one test."""
    asyncio.run(account.empty())
    return account


def _options(bucket: str) -> AwsOptions:
    """Return where AWS is: region and credentials are the SDK's."""
    from botocore.session import get_session

    endpoint = os.environ.get("TEST_AWS_ENDPOINT", "")
    region = os.environ.get("AWS_REGION") or get_session().get_config_variable("region") or REGION
    if not endpoint:
        return AwsOptions(region=region, bucket=bucket)
    return AwsOptions(
        region=region, bucket=bucket, endpoint_url=endpoint, access_key=ACCESS_KEY, secret_key=SECRET_KEY
    )


def _in_words(requests: dict[str, int]) -> str:
    cost = sum(_PRICES[service] * count for service, count in requests.items()) / 1_000_000
    named = ", ".join(f"{requests[service]:,} requests of {service}" for service in sorted(_PRICES))
    return f"{named}: about ${cost:.3f}, without tax and free tiers"


async def _empty_table(aws: Aws, table: str, *key: str) -> list[str]:
    """Delete all items; return the values of their first keys."""
    found: list[dict[str, Any]] = []
    names = {f"#{name}": name for name in key}
    async for page in Pages(
        aws.dynamodb,
        "Scan",
        TableName=table,
        ConsistentRead=True,
        ProjectionExpression=", ".join(names),
        ExpressionAttributeNames=names,
    ):
        found += page["Items"]
    for start in range(0, len(found), 25):
        deletes = [{"DeleteRequest": {"Key": item}} for item in found[start : start + 25]]
        await aws.batch_write(table, deletes)
    return [item[key[0]]["S"] for item in found]


async def _empty_bucket(aws: Aws, bucket: str) -> None:
    while keys := (await aws.s3("ListObjectsV2", Bucket=bucket)).get("Contents", []):
        objects = {"Objects": [{"Key": entry["Key"]} for entry in keys]}
        await aws.s3("DeleteObjects", Bucket=bucket, Delete=objects)


async def _drain(aws: Aws, url: str) -> None:
    """Delete the messages that a queue shows at once."""
    while True:
        received = await aws.sqs("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=0)
        messages = received.get("Messages", [])
        if not messages:
            return
        entries = [
            {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
            for number, message in enumerate(messages)
        ]
        await aws.sqs("DeleteMessageBatch", QueueUrl=url, Entries=entries)


async def _delete(aws: Aws, resource: Resource) -> None:
    match resource.kind:
        case ResourceKind.TABLE:
            await aws.dynamodb("DeleteTable", TableName=resource.name)
        case ResourceKind.QUEUE | ResourceKind.DEAD_LETTER_QUEUE:
            await aws.sqs("DeleteQueue", QueueUrl=resource.url)
        case ResourceKind.BUCKET:
            await _empty_bucket(aws, resource.name)
            try:
                await aws.s3("DeleteBucket", Bucket=resource.name)
            except Refused:
                await _empty_bucket(aws, resource.name)
                await aws.s3("DeleteBucket", Bucket=resource.name)
