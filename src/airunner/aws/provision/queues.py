"""A queue and the dead-letter queue behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from airunner.aws.errors import Refused
from airunner.aws.paging import Pages
from airunner.aws.provision.resources import NOT_YET, Change, Resource, ResourceKind, outcome_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airunner.aws.calls import Aws
    from airunner.aws.provision.definitions import Arguments, QueueDefinition
    from airunner.aws.provision.resources import Writer

_UNKNOWN: Final = frozenset({"NonExistentQueue", "QueueDoesNotExist"})


async def provide_queue(writer: Writer, wanted: QueueDefinition) -> list[Resource]:
    """Make or mend a queue and its dead-letter queue, which comes first."""
    queue, attributes = wanted.queue, wanted.dead_letter_attributes()
    kind, name = ResourceKind.DEAD_LETTER_QUEUE, wanted.dead_letter_name
    dead_letters = await _provide(writer, kind, queue, name, attributes)
    attributes = wanted.attributes(dead_letters.arn)
    kind, name = ResourceKind.QUEUE, wanted.name
    keeps_more = wanted.keeps_more_receives
    return [dead_letters, await _provide(writer, kind, queue, name, attributes, keeps_more=keeps_more)]


async def _provide(
    writer: Writer,
    kind: ResourceKind,
    queue: str,
    name: str,
    wanted: dict[str, str],
    *,
    keeps_more: bool = True,
) -> Resource:
    url = await _find(writer.aws, name)
    found = await _attributes_if_known(writer.aws, url)
    if not found:
        return await _create(writer, kind, queue, name, wanted)
    differing = {key: value for key, value in wanted.items() if not _serves(found, key, value, keeps_more)}
    if differing:
        await _set(writer, name, url, differing)
    return Resource(
        kind=kind,
        name=name,
        queue=queue,
        change=outcome_of(sorted(differing)),
        arn=found["QueueArn"],
        url=url,
        details=tuple(sorted(differing)),
    )


async def _create(
    writer: Writer, kind: ResourceKind, queue: str, name: str, wanted: dict[str, str]
) -> Resource:
    what = f"{kind} {name}"

    async def create() -> Arguments:
        # With the same attributes it answers the same twice, so a listing that lags behind does no harm.
        return await writer.aws.sqs("CreateQueue", QueueName=name, Attributes=wanted, expected=NOT_YET)

    url = (await writer.write(create, what)).get("QueueUrl", "")
    arn = ""
    if url:
        # Others may not know a queue for a second after it was made.
        arn = (await writer.repeat(lambda: _attributes(writer.aws, url), what))["QueueArn"]
    return Resource(kind=kind, name=name, queue=queue, change=Change.CREATED, arn=arn, url=url)


async def _set(writer: Writer, name: str, url: str, attributes: dict[str, str]) -> None:
    async def change() -> Arguments:
        return await writer.aws.sqs(
            "SetQueueAttributes", QueueUrl=url, Attributes=attributes, expected=NOT_YET
        )

    await writer.write(change, f"queue {name}")


async def _find(aws: Aws, name: str) -> str:
    """Return the URL of the queue of this name, empty if there is none."""
    async for page in Pages(aws.sqs, "ListQueues", QueueNamePrefix=name, MaxResults=1000):
        for url in page.get("QueueUrls", []):
            if url.rpartition("/")[2] == name:
                return str(url)
    return ""


async def _attributes_if_known(aws: Aws, url: str) -> Arguments:
    """Return the attributes of a queue that was listed; empty where it is none, or was deleted since."""
    try:
        return await _attributes(aws, url) if url else {}
    except Refused as refused:
        if refused.code in _UNKNOWN:
            return {}
        raise


async def _attributes(aws: Aws, url: str) -> Arguments:
    reply = await aws.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["All"], expected=NOT_YET)
    found: Arguments = reply["Attributes"]
    return found


def _serves(found: Mapping[str, str], name: str, wanted: str, keeps_more: bool) -> bool:
    """Return whether an attribute is what is wanted, or as good; a key of KMS encrypts, too."""
    if name == "SqsManagedSseEnabled" and found.get("KmsMasterKeyId"):
        return True
    if name != "RedrivePolicy" or not found.get(name):
        return found.get(name, "") == wanted
    # SQS writes this JSON in its own way, numbers even as text.
    there, needed = json.loads(found[name]), json.loads(wanted)
    count, least = int(there["maxReceiveCount"]), int(needed["maxReceiveCount"])
    is_enough = count >= least if keeps_more else count == least
    return is_enough and bool(there["deadLetterTargetArn"] == needed["deadLetterTargetArn"])
