"""What a call of AWS costs us beside the bare SDK: CPU time, since the network is the same for both."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Literal

from aiobotocore.session import get_session

from airunner.stores.aws.connection import Aws, AwsOptions
from benchmarks.canned_aws import MESSAGE
from benchmarks.harness import Row, free_port, median, rate, running

_ROUNDS = 7
_CALLS = 300
_AT_ONCE = 16
_GOAL = 1.5
_NAME = "bench"
_JOB_ID = {"S": "01J00000000000000000000000"}
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "PutItem": {
        "TableName": "airunner_jobs",
        "Item": {
            "job_id": _JOB_ID,
            "queue": {"S": "default"},
            "state": {"N": "1"},
            "created_at": {"N": "1700000000000"},
            "job_params": {"B": bytes(512)},
            "list_key": {"S": "default#3"},
            "order_key": {"S": "1700000000000-000001-01J00000000000000000000000"},
        },
        "ConditionExpression": "attribute_not_exists(job_id)",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    },
    "UpdateItem": {
        "TableName": "airunner_jobs",
        "Key": {"job_id": _JOB_ID},
        "UpdateExpression": "SET #last = :last, nonce = :nonce",
        "ConditionExpression": "attempt = :attempt AND #last = :before",
        "ExpressionAttributeNames": {"#last": "last_sequence"},
        "ExpressionAttributeValues": {
            ":attempt": {"N": "1"},
            ":before": {"N": "50"},
            ":last": {"N": "100"},
            ":nonce": {"S": "0b1c6a0e-0000-4000-8000-000000000000"},
        },
        "ReturnValues": "ALL_NEW",
    },
    "SendMessage": {"QueueUrl": "http://127.0.0.1/000000000000/airunner-dev-default", "MessageBody": MESSAGE},
}

Call = Callable[[dict[str, Any]], Awaitable[object]]


async def run() -> list[Row]:
    """One row for each operation that every job needs."""
    port = free_port()
    with running(sys.executable, "-m", "benchmarks.canned_aws", str(port)):
        await _until_listening(port)
        url = f"http://127.0.0.1:{port}"
        options = AwsOptions(region="eu-west-1", endpoint_url=url, access_key=_NAME, secret_key=_NAME)
        async with Aws(options) as aws, _client("dynamodb", url) as dynamodb, _client("sqs", url) as sqs:
            return [
                await _compare("PutItem", _ours(aws.dynamodb, "PutItem"), _bare(dynamodb.put_item)),
                await _compare("UpdateItem", _ours(aws.dynamodb, "UpdateItem"), _bare(dynamodb.update_item)),
                await _compare("SendMessage", _ours(aws.sqs, "SendMessage"), _bare(sqs.send_message)),
            ]


def _client(service: Literal["dynamodb", "sqs"], url: str) -> AbstractAsyncContextManager[Any]:
    return get_session().create_client(
        service,
        region_name="eu-west-1",
        endpoint_url=url,
        aws_access_key_id=_NAME,
        aws_secret_access_key=_NAME,
    )


def _ours(method: Callable[..., Awaitable[object]], operation: str) -> Call:
    return lambda arguments: method(operation, **arguments)


def _bare(method: Callable[..., Awaitable[object]]) -> Call:
    return lambda arguments: method(**arguments)


async def _compare(operation: str, ours: Call, bare: Call) -> Row:
    """Take turns, so that whatever else the machine does disturbs both alike."""
    pairs = []
    for turn in range(_ROUNDS + 1):
        pair = await _cpu_micros(operation, ours), await _cpu_micros(operation, bare)
        pairs += [pair] if turn else []  # the first opens the connections
    ratio = median([here / there for here, there in pairs])
    return Row(
        name=f"AWS {operation}",
        measured=f"{median([here for here, _ in pairs]):,.0f} us of CPU",
        limit=f"{median([there for _, there in pairs]):,.0f} us, bare aiobotocore",
        ratio=ratio,
        goal=f"<= {_GOAL}",
        met=ratio <= _GOAL,
    )


async def _cpu_micros(operation: str, call: Call) -> float:
    began = time.process_time()
    await rate([_ARGUMENTS[operation]] * _CALLS, _AT_ONCE, call)
    return (time.process_time() - began) / _CALLS * 1_000_000


async def _until_listening(port: int) -> None:
    for _ in range(200):
        with suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)
    raise RuntimeError("the canned server did not come up")
