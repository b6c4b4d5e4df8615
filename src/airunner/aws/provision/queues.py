"""A queue and the dead-letter queue behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airunner.aws.paging import Pages
from airunner.aws.provision.resources import Change, Resource, ResourceKind, outcome_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airunner.aws.calls import Aws
    from airunner.aws.provision.definitions import QueueDefinition
    from airunner.aws.provision.resources import Writer


async def provide_queue(writer: Writer, wanted: QueueDefinition) -> list[Resource]:
    """Make or mend a queue and its dead-letter queue, which comes first."""
    queue, attributes = wanted.queue, wanted.dead_letter_attributes()
    kind, name = ResourceKind.DEAD_LETTER_QUEUE, wanted.dead_letter_name
    dead_letters = await _provide(writer, kind, queue, name, attributes)
    attributes = wanted.attributes(dead_letters.arn)
    return [dead_letters, await _provide(writer, ResourceKind.QUEUE, queue, wanted.name, attributes)]


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
    async for page in Pages(aws.sqs, "ListQueues", QueueNamePrefix=name, MaxResults=1000):
        for url in page.get("QueueUrls", []):
            if url.rpartition("/")[2] == name:
                return str(url)
    return ""


async def _attributes(aws: Aws, url: str) -> Mapping[str, str]:
    reply = await aws.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"])
    found: Mapping[str, str] = reply["Attributes"]
    return found


def _same(found: str, wanted: str) -> bool:
    """Return whether an attribute is as wanted; a redrive policy that allows more receives is.

    SQS writes the JSON of a policy in its own way, numbers even as text.
    """
    if not wanted.startswith("{"):
        return found == wanted
    if not found:
        return False
    policy, needed = json.loads(found), json.loads(wanted)
    if policy.get("deadLetterTargetArn") != needed["deadLetterTargetArn"]:
        return False
    return int(policy.get("maxReceiveCount", 0)) >= int(needed["maxReceiveCount"])
