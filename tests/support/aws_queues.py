"""A queue with a dead-letter queue on the emulator."""

from __future__ import annotations

import json

from airunner.aws.calls import Aws
from airunner.testing.conformance.queues.backend import MAX_RECEIVE_COUNT


async def make_queues(account: Aws, name: str) -> tuple[str, str]:
    """Make a queue and its dead-letter queue; return their addresses, that of the latter first."""
    dead_url = (await account.sqs("CreateQueue", QueueName=f"{name}-dlq"))["QueueUrl"]
    found = await account.sqs("GetQueueAttributes", QueueUrl=dead_url, AttributeNames=["QueueArn"])
    redrive = {"deadLetterTargetArn": found["Attributes"]["QueueArn"], "maxReceiveCount": MAX_RECEIVE_COUNT}
    attributes = {"RedrivePolicy": json.dumps(redrive)}
    made = await account.sqs("CreateQueue", QueueName=name, Attributes=attributes)
    return dead_url, made["QueueUrl"]
