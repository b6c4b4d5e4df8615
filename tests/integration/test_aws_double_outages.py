"""Services of the emulated AWS that are away: nothing is performed, nobody waits, and all is back after."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from botocore.exceptions import ClientError

from airunner.domain.errors import Unavailable
from airunner.testing.conditions import until
from airunner.testing.factories import make_services
from tests.doubles.aws.emulator import EmulatorProcess
from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client
from tests.support.aws_samples import Queue, Table, refused
from tests.support.aws_stores import QUICK, BorrowLayout, ClockOfAll, make_store, outage

pytest_plugins = ("tests.support.aws_samples",)


async def test_a_service_that_is_away_performs_nothing_and_others_go_on(
    emulator: EmulatorProcess, aws_table: Table, aws_queue: Queue
) -> None:
    with outage(emulator, "dynamodb"):
        with refused("ServiceUnavailable"):
            await aws_table.put("a")
        await aws_queue.send("a")
    assert await aws_table.get("a") is None
    with outage(emulator, "sqs"):
        with refused("ServiceUnavailable"):
            await aws_queue.receive()
        await aws_table.put("b")
    assert await aws_table.get("b") is not None
    assert [message["Body"] for message in await aws_queue.receive()] == ["a"]


async def test_everything_can_be_away(
    emulator: EmulatorProcess, aws: StrictProxy, aws_table: Table, aws_queue: Queue
) -> None:
    async with client("s3", aws.url) as s3:
        link = await s3.generate_presigned_url("get_object", Params={"Bucket": "bucket", "Key": "key"})
        with outage(emulator):
            for call in (aws_table.put("a"), aws_queue.send("a"), s3.get_object(Bucket="bucket", Key="key")):
                with refused("ServiceUnavailable"):
                    await call
            assert await _status(link) == 503
        assert await _status(link) == 404


@pytest.mark.parametrize("through", ["proxy", "emulator"])
async def test_connections_break_where_that_is_wanted(
    emulator: EmulatorProcess, aws: StrictProxy, through: str
) -> None:
    async with client("sqs", aws.url if through == "proxy" else emulator.url) as sqs:
        with outage(emulator, breaks_connections=True), pytest.raises(Exception, match="closed") as raised:
            await sqs.list_queues()
        assert not isinstance(raised.value, ClientError)
        await sqs.list_queues()


async def test_a_parked_receive_ends_with_the_outage_and_takes_nothing(
    emulator: EmulatorProcess, aws: StrictProxy, aws_queue: Queue
) -> None:
    parked = asyncio.create_task(aws_queue.receive(WaitTimeSeconds=20))
    await until(lambda: aws.counts.calls["ReceiveMessage"] == 1)
    with outage(emulator, "sqs"), refused("ServiceUnavailable"):
        await parked
    await aws_queue.send("a")
    (message,) = await aws_queue.receive(AttributeNames=["ApproximateReceiveCount"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


async def test_a_store_says_at_once_that_aws_is_away(
    emulator: EmulatorProcess, aws: StrictProxy, borrow_layout: BorrowLayout
) -> None:
    clock = ClockOfAll(emulator)
    store = make_store(aws.url, await borrow_layout(), clock, policy=QUICK)
    async with make_services(store, clock):
        with outage(emulator, "dynamodb"):
            clock.advance(600)
            with pytest.raises(Unavailable):
                await store.check()
        # What the tables said is kept for a moment.
        clock.advance(2)
        await store.check()


async def _status(url: str) -> int:

    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status
