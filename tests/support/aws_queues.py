"""Queues with a dead-letter queue on the emulator."""

from __future__ import annotations

import json

from airunner.aws.calls import Aws
from tests.doubles.aws.emulator import REGION

# As long as SQS can, as the queues of our layouts have it.
_KEPT = {"MessageRetentionPeriod": str(14 * 24 * 3600)}


async def make_queues(account: Aws, name: str, max_receive_count: int) -> tuple[str, str]:
    """Make a queue and its dead-letter queue; return their addresses, that of the latter first."""
    dead = await account.sqs("CreateQueue", QueueName=f"{name}-dlq", Attributes=_KEPT)
    dead_url: str = dead["QueueUrl"]
    attributes = _KEPT | _put_aside(dead_url, max_receive_count)
    made = await account.sqs("CreateQueue", QueueName=name, Attributes=attributes)
    return dead_url, made["QueueUrl"]


async def limit_receives(account: Aws, url: str, max_receive_count: int) -> None:
    """Let a queue that has a dead-letter queue put messages aside after so many receives."""
    attributes = _put_aside(f"{url}-dlq", max_receive_count)
    await account.sqs("SetQueueAttributes", QueueUrl=url, Attributes=attributes)


def _put_aside(dead_url: str, max_receive_count: int) -> dict[str, str]:
    number, dead_name = dead_url.split("/")[-2:]
    redrive = {
        "deadLetterTargetArn": f"arn:aws:sqs:{REGION}:{number}:{dead_name}",
        "maxReceiveCount": max_receive_count,
    }
    return {"RedrivePolicy": json.dumps(redrive)}
