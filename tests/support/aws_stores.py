"""AwsStores on the emulator: fresh tables and queues, made the quick way, for each test."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from airunner.aws.calls import Aws, AwsOptions
from airunner.aws.clients import OF_A_STORE
from airunner.domain.clock import Clock
from airunner.stores.aws import layout as shapes
from airunner.stores.aws.layout import Layout
from airunner.stores.aws.store import AwsStore
from tests.doubles.aws.emulator import ACCESS_KEY, REGION, SECRET_KEY

QUEUES = ("builds", "other", "one", "two", "three", "third", "high", "low")
# Names that only occur: one queue serves them all. SQS has no room for the long one behind our prefix.
FEW_MORE = ("none",)
MANY_MORE = (*FEW_MORE, "q" * 80, *(f"q{number}" for number in range(20)))


def more_names(test: pytest.FixtureRequest) -> Sequence[str]:
    """Return what queues a conformance test speaks of beside the usual ones."""
    return MANY_MORE if test.node.originalname == "test_the_limits_themselves_are_accepted" else FEW_MORE


def options_of(url: str) -> AwsOptions:
    return AwsOptions(region=REGION, endpoint_url=url, access_key=ACCESS_KEY, secret_key=SECRET_KEY)


async def make_resources(
    url: str,
    env: str,
    *,
    queues: Sequence[str] = QUEUES,
    more: Sequence[str] = FEW_MORE,
    bucket: bool = False,
    streams: bool = False,
) -> Layout:
    """Make tables and queues of one environment, without the redrive that no test of a store needs.

    Every pass of upkeep looks at each queue that has a name.
    """
    layout = Layout(
        env=env,
        jobs_table=f"{env}_jobs",
        events_table=f"{env}_events",
        bucket=f"{env}-payloads" if bucket else "",
        listing_shards=2,
        streams=streams,
    )
    clients = ("dynamodb", "sqs", *(["s3"] if bucket else []))
    async with Aws(replace(options_of(url), clients=clients)) as aws:
        await asyncio.gather(*(aws.dynamodb("CreateTable", **table) for table in shapes.tables(layout)))
        made = await asyncio.gather(
            *(aws.sqs("CreateQueue", QueueName=layout.queue_name(queue)) for queue in (*queues, "more"))
        )
        if bucket:
            region = {"LocationConstraint": REGION}
            await aws.s3("CreateBucket", Bucket=layout.bucket, CreateBucketConfiguration=region)
    urls = [answer["QueueUrl"] for answer in made]
    named = dict(zip(queues, urls, strict=False)) | dict.fromkeys(more, urls[-1])
    return replace(layout, queues=named)


def make_store(url: str, layout: Layout, clock: Clock) -> AwsStore:
    clients = (
        *(name for name in OF_A_STORE if layout.bucket or name != "s3"),
        *(["streams"] if layout.streams else []),
    )
    options = replace(options_of(url), bucket=layout.bucket, clients=clients)
    return AwsStore(Aws(options), layout, clock, short_poll_seconds=0)
