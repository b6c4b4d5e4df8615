"""A table and a queue of one test, with the few calls that the tests of the double make of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.doubles.aws.strict import StrictProxy
from tests.support.aws import client


@dataclass(frozen=True)
class Table:
    """A table of one test, with an index `by_group`."""

    name: str
    dynamodb: Any

    async def put(self, item_id: str, **attributes: Any) -> None:
        await self.dynamodb.put_item(TableName=self.name, Item=item(item_id, **attributes))

    async def get(self, item_id: str, *, consistent: bool = True) -> dict[str, Any] | None:
        answer = await self.dynamodb.get_item(
            TableName=self.name, Key={"id": {"S": item_id}}, ConsistentRead=consistent
        )
        found: dict[str, Any] | None = answer.get("Item")
        return found

    async def group(self, group: str, **arguments: Any) -> list[str]:
        answer = await self.dynamodb.query(
            TableName=self.name,
            IndexName="by_group",
            KeyConditionExpression="group_key = :group",
            ExpressionAttributeValues={":group": {"S": group}},
            **arguments,
        )
        return [one["id"]["S"] for one in answer["Items"]]


@dataclass(frozen=True)
class Queue:
    """A queue of one test, with a visibility timeout of 30 seconds."""

    url: str
    sqs: Any

    async def send(self, *bodies: str) -> None:
        for body in bodies:
            await self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    async def receive(self, count: int = 1, **arguments: Any) -> list[dict[str, Any]]:
        answer = await self.sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=count, **arguments)
        found: list[dict[str, Any]] = answer.get("Messages", [])
        return found

    async def delete(self, message: dict[str, Any]) -> None:
        await self.sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])

    async def count(self, attribute: str) -> int:
        answer = await self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=[attribute])
        return int(answer["Attributes"][attribute])

    async def change(self, message: dict[str, Any], seconds: int) -> None:
        await self.sqs.change_message_visibility(
            QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )


@pytest.fixture
async def aws_table(aws: StrictProxy, aws_env: str) -> AsyncIterator[Table]:
    async with client("dynamodb", aws.url) as dynamodb:
        await dynamodb.create_table(
            TableName=aws_env,
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[
                {"AttributeName": name, "AttributeType": kind}
                for name, kind in (("id", "S"), ("group_key", "S"), ("rank", "N"))
            ],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "by_group",
                    "KeySchema": [
                        {"AttributeName": "group_key", "KeyType": "HASH"},
                        {"AttributeName": "rank", "KeyType": "RANGE"},
                    ],
                    "Projection": {"ProjectionType": "ALL"},
                }
            ],
            BillingMode="PAY_PER_REQUEST",
        )
        aws.counts.reset()
        yield Table(name=aws_env, dynamodb=dynamodb)


@pytest.fixture
async def aws_queue(aws: StrictProxy, aws_env: str) -> AsyncIterator[Queue]:
    async with client("sqs", aws.url) as sqs:
        made = await sqs.create_queue(QueueName=aws_env, Attributes={"VisibilityTimeout": "30"})
        aws.counts.reset()
        yield Queue(url=made["QueueUrl"], sqs=sqs)


def item(item_id: str, **attributes: Any) -> dict[str, Any]:
    return {"id": {"S": item_id}, **attributes}


def refused(code: str, match: str = "") -> Any:
    """Expect that AWS refuses with a code, and a text that matches."""
    return pytest.raises(ClientError, match=f"(?s){code}.*{match}")
