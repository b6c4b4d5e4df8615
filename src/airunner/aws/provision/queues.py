"""A queue and the dead-letter queue behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airunner.aws.provision.resources import Change, Resource, ResourceKind, outcome_of
from airunner.stores.aws import layout as definitions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airunner.aws.calls import Aws
    from airunner.aws.provision.resources import Writer
    from airunner.stores.aws.layout import Layout


async def provide_queue(writer: Writer, layout: Layout, queue: str) -> list[Resource]:
    """Make or mend both queues of one logical queue; the dead-letter queue comes first."""
    name, attributes = layout.dead_letter_name(queue), definitions.dead_letter_attributes()
    dead_letters = await _provide(writer, ResourceKind.DEAD_LETTER_QUEUE, queue, name, attributes)
    attributes = definitions.queue_attributes(dead_letters.arn)
    return [
        dead_letters,
        await _provide(writer, ResourceKind.QUEUE, queue, layout.queue_name(queue), attributes),
    ]


async def _provide(
    writer: Writer, kind: ResourceKind, queue: str, name: str, wanted: dict[str, str]
) -> Resource:
    aws = writer.aws
    url = await _find(aws, name)
    if not url:
        # With the same attributes it answers the same twice, so a listing that lags behind does no harm.
        await writer.write(lambda: aws.sqs("CreateQueue", QueueName=name, Attributes=wanted))
        url = "" if writer.dry_run else (await aws.sqs("GetQueueUrl", QueueName=name))["QueueUrl"]
        arn = (await _attributes(aws, url))["QueueArn"] if url else ""
        return Resource(kind=kind, name=name, queue=queue, change=Change.CREATED, arn=arn, url=url)
    found = await _attributes(aws, url)
    differing = {key: value for key, value in wanted.items() if not _same(found.get(key, ""), value)}
    if differing:
        await writer.write(lambda: aws.sqs("SetQueueAttributes", QueueUrl=url, Attributes=differing))
    return Resource(
        kind=kind,
        name=name,
        queue=queue,
        change=outcome_of(sorted(differing)),
        arn=found["QueueArn"],
        url=url,
        details=tuple(sorted(differing)),
    )


async def _find(aws: Aws, name: str) -> str:
    """Return the URL of the queue of this name, empty if there is none."""
    arguments: dict[str, Any] = {"QueueNamePrefix": name, "MaxResults": 1000}
    while True:
        page = await aws.sqs("ListQueues", **arguments)
        for url in page.get("QueueUrls", []):
            if url.rpartition("/")[2] == name:
                return str(url)
        if not page.get("NextToken"):
            return ""
        arguments["NextToken"] = page["NextToken"]


async def _attributes(aws: Aws, url: str) -> Mapping[str, str]:
    reply = await aws.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
    found: Mapping[str, str] = reply["Attributes"]
    return found


def _same(found: str, wanted: str) -> bool:
    """Compare attributes; SQS writes the JSON of a redrive policy in its own way, numbers even as text."""
    if not wanted.startswith("{"):
        return found == wanted
    return bool(found) and _texts(json.loads(found)) == _texts(json.loads(wanted))


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}
