"""Calls of AWS over a socket: against moto, and against a server that fails as scripted."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from structlog.testing import capture_logs

from airunner import telemetry
from airunner.aws.calls import (
    Aws,
    AwsOptions,
    CancellationReason,
    ConditionFailed,
    Refused,
    TransactionCancelled,
)
from airunner.domain.errors import FailedPrecondition, ResourceExhausted, Unavailable, error_text
from airunner.domain.retry import RetryPolicy
from airunner.testing.clock import ManualClock
from airunner.testing.conditions import until
from tests.doubles.aws.emulator import EmulatorProcess
from tests.support.scraping import Change
from tests.support.scripted_aws import DRIPPING, HELD, RESET, Reply, refusal, scripted_aws

ITEM = {"job_id": {"S": "j1"}, "payload": {"B": b"\x00\xff"}}
NOBODY = {"job_id": {"S": "check#"}}
NO_EVENT = {**NOBODY, "sequence": {"N": "0"}}
GET = {"TableName": "t", "Key": {"job_id": {"S": "j1"}}}
QUEUE: dict[str, Any] = {"QueueUrl": "http://127.0.0.1/q"}
THROTTLED = refusal("ProvisionedThroughputExceededException")
SOON_SECONDS = 0.05
EXACT = RetryPolicy(first_seconds=0.05, max_seconds=2.0, jitter=0.0, attempts=4)
LIMIT_SECONDS = 20


class PausesNoted(ManualClock):
    """A clock whose pauses are over at once, and are remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


def options(url: str, **more: Any) -> AwsOptions:
    return AwsOptions(
        **{"region": "eu-west-1", "endpoint_url": url, "access_key": "k", "secret_key": "s", **more}
    )


# Faults


async def test_a_throttled_call_is_repeated_after_growing_pauses() -> None:
    clock, retries = PausesNoted(), Change(telemetry.aws_retries)
    calls, throttles = Change(telemetry.aws_calls), Change(telemetry.aws_throttles)
    async with scripted_aws(THROTTLED, THROTTLED, Reply()) as server:
        async with Aws(options(server.url), clock=clock) as aws:
            await aws.dynamodb("GetItem", **GET)
        assert server.operations == ["getitem"] * 3
    assert len(clock.pauses) == 2
    assert all(0 <= pause <= most for pause, most in zip(clock.pauses, (0.05, 0.1), strict=True))
    assert (calls("dynamodb", "GetItem", "throttled"), calls("dynamodb", "GetItem", "ok")) == (2, 1)
    assert (retries("dynamodb"), throttles("dynamodb")) == (2, 2)


async def test_throttling_for_ever_ends_after_the_last_try() -> None:
    clock = PausesNoted()
    async with (
        scripted_aws(refusal("RequestThrottled")) as server,
        Aws(options(server.url), clock=clock) as aws,
    ):
        with pytest.raises(ResourceExhausted):
            await aws.sqs("SendMessage", **QUEUE, MessageBody="{}")
        assert server.operations == ["sendmessage"] * 8
    longest = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
    assert all(0 <= pause <= most for pause, most in zip(clock.pauses, longest, strict=True))


def done_in_part(field: str, left: Any, **more: Any) -> Reply:
    return Reply(200, json.dumps({field: {"t": left}, **more}).encode())


KEYS = [{"job_id": {"S": f"j{number}"}} for number in range(1, 4)]


async def test_what_a_batch_leaves_is_asked_for_after_growing_pauses() -> None:
    clock, retries = PausesNoted(), Change(telemetry.aws_retries)
    first = done_in_part("UnprocessedKeys", {"Keys": KEYS[1:]}, Responses={"t": [KEYS[0]]})
    nothing = done_in_part("UnprocessedKeys", {"Keys": KEYS[1:]}, Responses={"t": []})
    rest = Reply(200, json.dumps({"Responses": {"t": KEYS[1:]}, "UnprocessedKeys": {}}).encode())
    async with scripted_aws(first, nothing, rest) as server:
        async with Aws(options(server.url), clock=clock, policy=EXACT) as aws:
            assert await aws.batch_get("t", KEYS, ConsistentRead=True) == KEYS
        asked = [body["RequestItems"]["t"] for body in server.bodies]
    assert [request["Keys"] for request in asked] == [KEYS, KEYS[1:], KEYS[1:]]
    assert clock.pauses == [0.05, 0.1]
    assert retries("dynamodb") == 2


async def test_a_batch_that_gets_on_is_never_given_up() -> None:
    clock = PausesNoted()
    deletes = [{"DeleteRequest": {"Key": KEYS[0]}}] * 7
    parts = [done_in_part("UnprocessedItems", deletes[done:]) for done in range(1, 7)]
    async with scripted_aws(*parts, Reply()) as server:
        async with Aws(options(server.url), clock=clock, policy=EXACT) as aws:
            await aws.batch_write("t", deletes)
        assert [len(body["RequestItems"]["t"]) for body in server.bodies] == [7, 6, 5, 4, 3, 2, 1]
    assert clock.pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6]


async def test_a_batch_of_which_nothing_gets_done_is_throttled_after_the_last_try() -> None:
    clock = PausesNoted()
    deletes = [{"DeleteRequest": {"Key": key}} for key in KEYS]
    async with (
        scripted_aws(done_in_part("UnprocessedItems", deletes)) as server,
        Aws(options(server.url), clock=clock, policy=EXACT) as aws,
    ):
        with capture_logs() as said, pytest.raises(ResourceExhausted):
            await aws.batch_write("t", deletes)
        assert server.operations == ["batchwriteitem"] * 4
    assert clock.pauses == [0.05, 0.1, 0.2]
    assert [(line["operation"], line["tries"]) for line in said] == [("BatchWriteItem", 4)]


async def test_the_pauses_of_a_batch_are_jittered() -> None:
    clock = PausesNoted()
    deletes = [{"DeleteRequest": {"Key": key}} for key in KEYS]
    async with (
        scripted_aws(done_in_part("UnprocessedItems", deletes)) as server,
        Aws(options(server.url), clock=clock) as aws,
    ):
        with pytest.raises(ResourceExhausted):
            await aws.batch_write("t", deletes)
    assert all(0 <= pause < most for pause, most in zip(clock.pauses, (0.05, 0.1, 0.2), strict=True))


@pytest.mark.parametrize(
    "fault", [refusal("InternalServerError", 500), Reply(503, b"<html>"), RESET], ids=repr
)
async def test_what_fails_once_is_repeated(fault: Reply | str) -> None:
    async with (
        scripted_aws(fault, Reply(200, json.dumps({"Item": {"job_id": {"S": "j1"}}}).encode())) as server,
        Aws(options(server.url), clock=PausesNoted()) as aws,
    ):
        reply = await aws.dynamodb("GetItem", **GET)
        assert reply["Item"] == {"job_id": {"S": "j1"}}
        assert len(server.operations) == 2


@pytest.mark.parametrize("fault", [refusal("InternalServerError", 500), RESET], ids=repr)
async def test_what_always_fails_is_unavailable_after_the_last_try(fault: Reply | str) -> None:
    errors = Change(telemetry.aws_calls)
    async with scripted_aws(fault) as server, Aws(options(server.url), clock=PausesNoted()) as aws:
        with pytest.raises(Unavailable):
            await aws.dynamodb("GetItem", **GET)
        assert len(server.operations) == 4
    assert errors("dynamodb", "GetItem", "error") == 4


async def test_in_an_outage_calls_are_not_repeated_for_long_and_are_again_after_it() -> None:
    refused = Change(telemetry.aws_retries_refused)
    away, no = refusal("InternalServerError", 500), refusal("ConditionalCheckFailedException")
    async with scripted_aws(away) as server, Aws(options(server.url), clock=PausesNoted()) as aws:
        for _ in range(40):
            with pytest.raises(Unavailable):
                await aws.dynamodb("GetItem", **GET)
        assert (len(server.operations), refused("dynamodb")) == (40 + 100, 7)
        # Another service has a budget of its own.
        with pytest.raises(Unavailable):
            await aws.sqs("SendMessage", **QUEUE, MessageBody="{}")
        assert server.operations[140:] == ["sendmessage"] * 4
        # An answer gives one back, one that says no as well; and what is answered in the end costs nothing.
        server.steps[:] = [Reply(), no, Reply(), no, Reply(), *[away, Reply()] * 20, away]
        for _ in range(5):
            with suppress(ConditionFailed):
                await aws.dynamodb("GetItem", **GET)
        for _ in range(20):
            await aws.dynamodb("GetItem", **GET)
        with pytest.raises(Unavailable):
            await aws.dynamodb("GetItem", **GET)
        assert (len(server.operations), refused("dynamodb")) == (144 + 5 + 40 + 2, 8)


async def test_nobody_listens() -> None:
    async with scripted_aws(Reply()) as server:
        url = server.url
    async with Aws(options(url), clock=PausesNoted()) as aws:
        with pytest.raises(Unavailable):
            await aws.dynamodb("GetItem", **GET)


@pytest.mark.parametrize("fault", [HELD, DRIPPING])
async def test_a_reply_that_never_comes_ends_with_the_deadline(fault: str) -> None:
    calls = Change(telemetry.aws_calls)
    async with (
        scripted_aws(fault) as server,
        Aws(options(server.url, table_seconds=SOON_SECONDS, attempts=2), clock=PausesNoted()) as aws,
    ):
        async with asyncio.timeout(LIMIT_SECONDS):
            with pytest.raises(Unavailable):
                await aws.dynamodb("GetItem", **GET)
        await until(lambda: not server.connections)
    assert calls("dynamodb", "GetItem", "timeout") == 2


async def test_a_long_poll_has_as_much_more_time() -> None:
    async with (
        scripted_aws(HELD) as server,
        Aws(options(server.url, call_seconds=SOON_SECONDS, attempts=1), clock=PausesNoted()) as aws,
    ):
        poll = asyncio.create_task(aws.sqs("ReceiveMessage", **QUEUE, wait_seconds=20, WaitTimeSeconds=20))
        await until(lambda: len(server.operations) == 1)
        for _ in range(3):
            with pytest.raises(Unavailable):
                await aws.sqs("SendMessage", **QUEUE, MessageBody="{}")
        assert not poll.done()
        server.let_go.set()
        await poll


async def test_nothing_waits_behind_a_long_poll() -> None:
    async with (
        scripted_aws(HELD, Reply()) as server,
        Aws(options(server.url, max_connections=1), clock=PausesNoted()) as aws,
    ):
        poll = asyncio.create_task(aws.sqs("ReceiveMessage", **QUEUE, wait_seconds=20, WaitTimeSeconds=20))
        await until(lambda: len(server.operations) == 1)
        await aws.sqs("DeleteMessage", **QUEUE, ReceiptHandle="r")
        assert not poll.done()
        server.let_go.set()
        await poll


async def test_long_polls_do_not_wait_for_each_other() -> None:
    many = 60
    async with scripted_aws(HELD) as server, Aws(options(server.url, max_connections=2)) as aws:
        receive = partial(aws.sqs, "ReceiveMessage", **QUEUE, wait_seconds=20, WaitTimeSeconds=20)
        polls = [asyncio.create_task(receive()) for _ in range(many)]
        await until(lambda: len(server.operations) == many)
        server.let_go.set()
        await asyncio.gather(*polls)


async def test_a_cancelled_call_ends_at_once() -> None:
    async with scripted_aws(HELD) as server, Aws(options(server.url)) as aws:
        call = asyncio.create_task(aws.dynamodb("GetItem", **GET))
        await until(lambda: len(server.operations) == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: not server.connections)
        assert len(server.operations) == 1


async def test_a_call_is_cancelled_in_its_pause() -> None:
    clock = ManualClock()
    async with scripted_aws(THROTTLED) as server, Aws(options(server.url), clock=clock) as aws:
        call = asyncio.create_task(aws.dynamodb("GetItem", **GET))
        await until(lambda: clock.waiting == 1 or call.done())
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert len(server.operations) == 1


async def test_every_try_of_a_transaction_has_the_same_token() -> None:
    async with scripted_aws(RESET, Reply()) as server, Aws(options(server.url), clock=PausesNoted()) as aws:
        await aws.dynamodb("TransactWriteItems", TransactItems=[])
        await aws.dynamodb("TransactWriteItems", TransactItems=[])
        first, repeated, other = (body["ClientRequestToken"] for body in server.bodies)
    assert first == repeated != other


async def test_a_refused_call_is_not_repeated_and_its_text_is_kept_from_the_log() -> None:
    async with (
        scripted_aws(refusal("ValidationException")) as server,
        Aws(options(server.url), clock=PausesNoted()) as aws,
    ):
        with capture_logs() as logs, pytest.raises(Refused) as caught:
            await aws.dynamodb("GetItem", **GET)
        assert len(server.operations) == 1
    assert (caught.value.code, caught.value.text) == ("ValidationException", "Internal error.")
    assert error_text(caught.value) == "AWS refused GetItem: ValidationException"
    assert caught.value.__context__ is None
    assert [(line["service"], line["operation"], line["code"]) for line in logs] == [
        ("dynamodb", "GetItem", "ValidationException")
    ]
    assert "quotes an item" not in str(logs)


async def test_a_transaction_in_conflict_is_repeated() -> None:
    conflict = refusal(
        "TransactionCanceledException",
        CancellationReasons=[{"Code": "None"}, {"Code": "TransactionConflict"}],
    )
    async with scripted_aws(conflict, Reply()) as server:
        async with Aws(options(server.url), clock=PausesNoted()) as aws:
            await aws.dynamodb("TransactWriteItems", TransactItems=[])
        assert len(server.operations) == 2


async def test_a_silent_connection_is_kept_alive() -> None:
    async with scripted_aws(Reply()) as server, Aws(options(server.url)) as aws:
        await aws.dynamodb("GetItem", **GET)
        port = f":{int(server.url.rpartition(':')[2]):04X}"
        await until(lambda: [kind for kind, _ in timers_towards(port)] == ["02"])
        # Long before a NAT gateway forgets a silent connection, which is after 350 s.
        assert all(seconds <= 30 for _, seconds in timers_towards(port))


def timers_towards(port: str) -> list[tuple[str, float]]:
    """Return which timer the kernel runs for each open connection to the port, and for how long still.

    02 is keep-alive; the kernel counts in hundredths of a second.
    """
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    timers = [row[5].split(":") for row in rows if row[2].endswith(port) and row[3] == "01"]
    return [(kind, int(when, 16) / 100) for kind, when in timers]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [({"endpoint_url": "nowhere"}, "nowhere"), ({"secret_key": ""}, "aws_secret_access_key")],
)
async def test_settings_that_cannot_work_are_named(wrong: dict[str, str], named: str) -> None:
    with pytest.raises(FailedPrecondition, match=named):
        await Aws(options(**{"url": "http://127.0.0.1:9"} | wrong)).__aenter__()


async def test_after_the_end_nothing_is_called() -> None:
    async with scripted_aws(Reply()) as server:
        async with Aws(options(server.url)) as aws:
            await aws.dynamodb("GetItem", **GET)
        with pytest.raises(Unavailable):
            await aws.dynamodb("GetItem", **GET)
        assert len(server.operations) == 1


async def test_given_credentials_are_the_only_ones_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_aws(Reply()) as server, scripted_aws(Reply()) as metadata:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url)
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", metadata.url)
        async with Aws(options(server.url), clock=PausesNoted()) as aws:
            await aws.dynamodb("GetItem", **GET)
        assert (len(server.operations), metadata.operations) == (1, [])


async def test_a_question_has_one_try() -> None:
    async with (
        scripted_aws(refusal("InternalServerError", 500)) as server,
        Aws(options(server.url, bucket="payloads")) as aws,
    ):
        assert await aws.ask_table("events", NO_EVENT) == "does not answer"
        assert await aws.ask_queue("http://x/q") == "does not answer"
        assert await aws.ask_bucket("jobs/check") == "does not answer"
        assert server.operations[:2] == ["getitem", "getqueueattributes"]
        assert len(server.operations) == 3
        assert server.bodies[0] == {"TableName": "events", "Key": NO_EVENT}


# What AWS answers


@pytest.fixture(scope="module")
def emulator() -> Iterator[EmulatorProcess]:
    with EmulatorProcess() as running:
        yield running


@pytest.fixture
async def aws(emulator: EmulatorProcess) -> AsyncIterator[Aws]:
    async with Aws(options(emulator.url, bucket="airunner-test", validate=True)) as opened:
        yield opened


@pytest.fixture
async def table(aws: Aws) -> str:
    return await create_table(aws, "job_id")


async def create_table(aws: Aws, *keys: str) -> str:
    name = f"t-{uuid.uuid4()}"
    kinds = {"job_id": "S", "sequence": "N"}
    await aws.dynamodb(
        "CreateTable",
        TableName=name,
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": kinds[key]} for key in keys],
        KeySchema=[
            {"AttributeName": key, "KeyType": "RANGE" if place else "HASH"} for place, key in enumerate(keys)
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    return name


def put_once(table: str) -> dict[str, Any]:
    return {
        "TableName": table,
        "Item": ITEM,
        "ConditionExpression": "attribute_not_exists(job_id)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


async def test_a_failed_condition_carries_the_item(aws: Aws, table: str) -> None:
    calls = Change(telemetry.aws_calls)
    await aws.dynamodb("PutItem", **put_once(table))
    with pytest.raises(ConditionFailed) as caught:
        await aws.dynamodb("PutItem", **put_once(table))
    assert caught.value.item == ITEM
    assert calls("dynamodb", "PutItem", "ok") == 2


async def test_a_cancelled_transaction_carries_its_reasons(aws: Aws, table: str) -> None:
    await aws.dynamodb("PutItem", **put_once(table))
    other = {"TableName": table, "Item": {"job_id": {"S": "j2"}}}
    with pytest.raises(TransactionCancelled) as caught:
        await aws.dynamodb("TransactWriteItems", TransactItems=[{"Put": other}, {"Put": put_once(table)}])
    assert caught.value.reasons == [
        CancellationReason("None"),
        CancellationReason("ConditionalCheckFailed", ITEM),
    ]


async def test_calls_their_time_and_their_capacity_are_counted(aws: Aws, table: str) -> None:
    times, capacity = Change(telemetry.aws_call_time), Change(telemetry.aws_consumed_capacity)
    await aws.dynamodb("PutItem", TableName=table, Item=ITEM)
    await aws.dynamodb("BatchGetItem", RequestItems={table: {"Keys": [{"job_id": {"S": "j1"}}]}})
    assert (times("dynamodb", "PutItem"), times("dynamodb", "BatchGetItem")) == (1, 1)
    assert capacity(table, "write") >= 1
    assert capacity(table, "read") > 0


async def test_messages_go_through_a_queue(aws: Aws) -> None:
    queue = (await aws.sqs("CreateQueue", QueueName=f"q-{uuid.uuid4()}"))["QueueUrl"]
    await aws.sqs("SendMessage", QueueUrl=queue, MessageBody="j1")
    received = await aws.sqs("ReceiveMessage", QueueUrl=queue, wait_seconds=1, WaitTimeSeconds=1)
    assert [message["Body"] for message in received["Messages"]] == ["j1"]


async def test_an_object_is_read_whole_and_by_its_address(aws: Aws) -> None:
    region = {"LocationConstraint": "eu-west-1"}
    await aws.s3("CreateBucket", Bucket="airunner-test", CreateBucketConfiguration=region)
    there = {"Bucket": "airunner-test", "Key": "jobs/j1/params"}
    await aws.s3("PutObject", **there, Body=b"payload")
    assert (await aws.s3("GetObject", **there))["Body"] == b"payload"
    address = await aws.presign("jobs/j1/params", 60)
    assert await asyncio.to_thread(read, address) == b"payload"


def read(address: str) -> bytes:
    with urlopen(address, timeout=10) as answer:  # noqa: S310  loopback
        found: bytes = answer.read()
    return found


async def test_nothing_is_wrong_with_what_is_there(aws: Aws, table: str) -> None:
    queue = (await aws.sqs("CreateQueue", QueueName=f"q-{uuid.uuid4()}"))["QueueUrl"]
    assert (await aws.ask_table(table, NOBODY), await aws.ask_queue(queue)) == ("", "")
    region = {"LocationConstraint": "eu-west-1"}
    with suppress(Refused):
        await aws.s3("CreateBucket", Bucket="airunner-test", CreateBucketConfiguration=region)
    assert await aws.ask_bucket("jobs/check") == ""


async def test_what_is_missing_does_not_exist(emulator: EmulatorProcess) -> None:
    async with Aws(options(emulator.url, bucket="nowhere")) as aws:
        missing = (await aws.sqs("CreateQueue", QueueName="here"))["QueueUrl"].replace("here", "gone")
        assert await aws.ask_table("nowhere", NOBODY) == "does not exist"
        assert await aws.ask_queue(missing) == "does not exist"
        assert await aws.ask_bucket("jobs/check") == "does not exist"


async def test_every_answer_about_a_table_is_heard(aws: Aws, table: str) -> None:
    heard: list[int] = []
    aws.listen(table, lambda: heard.append(len(heard)))
    other = await create_table(aws, "job_id")
    item = {"TableName": table, "Item": ITEM}
    await aws.dynamodb("PutItem", **item)
    with pytest.raises(ConditionFailed):
        await aws.dynamodb("PutItem", **item, ConditionExpression="attribute_not_exists(job_id)")
    await aws.batch_get(table, [NOBODY])
    await aws.dynamodb("TransactWriteItems", TransactItems=[{"Put": item}])
    await aws.ask_table(table, NOBODY)
    assert heard == [0, 1, 2, 3, 4]
    with pytest.raises(Refused):
        await aws.dynamodb("GetItem", TableName=table, Key={"nothing": {"S": "j1"}})
    await aws.ask_table(other, NOBODY)
    assert len(heard) == 5
