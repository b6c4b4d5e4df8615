"""SQS in calls of a size that it takes, and what became of each entry of a call.

Calls with many entries raise nothing of AWS: an entry that failed has its error in its place, and so has each
entry of a call that failed as a whole. The other entries are done.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from airunner.aws.errors import Refused, read_failed_entry
from airunner.domain.errors import AirunnerError, InvalidArgument, Unavailable
from airunner.domain.splitting import split_by_count, split_by_size

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.aws.calls import Aws

MAX_ENTRIES: Final = 10
"""Of one call, and the most that one receive returns."""
MAX_SEND_DELAY_SECONDS: Final = 900
MAX_WAIT_SECONDS: Final = 20
# What every queue takes in one call, those from before 2025 included. A larger message goes by itself.
_CALL_BYTES: Final = 256 * 1024

_COUNTS: Final = {
    "visible": "ApproximateNumberOfMessages",
    "in_flight": "ApproximateNumberOfMessagesNotVisible",
    "delayed": "ApproximateNumberOfMessagesDelayed",
}
_NO_QUEUE_CODES: Final = ("NonExistentQueue", "QueueDoesNotExist")
# What SQS says of a message that no queue will ever take.
_CONTENT_CODES: Final = frozenset(
    {"InvalidAttributeValue", "InvalidMessageContents", "InvalidParameterValue"}
)
# What it says of a receipt that holds its message no more.
_GONE_CODES: Final = frozenset({"InvalidParameterValue", "MessageNotInflight", "ReceiptHandleIsInvalid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsEntry:
    """A message to send."""

    body: str
    delay_seconds: int = 0
    """At most 15 minutes."""
    attributes: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many bytes SQS counts."""
        attributes = sum(_bytes(name) + _bytes(str(value)) + 6 for name, value in self.attributes.items())
        return _bytes(self.body) + attributes

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of SendMessage, which are those of an entry of SendMessageBatch too."""
        arguments: dict[str, Any] = {"MessageBody": self.body, "DelaySeconds": self.delay_seconds}
        if self.attributes:
            arguments["MessageAttributes"] = {
                name: {
                    "DataType": "String" if isinstance(value, str) else "Number",
                    "StringValue": str(value),
                }
                for name, value in self.attributes.items()
            }
        return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsMessage:
    """A message that was received. What was not asked for is empty or zero."""

    message_id: str
    body: str
    receipt: str
    receive_count: int = 0
    """How often it was received, this time included."""
    sent_at: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedrivePolicy:
    """Where a queue puts messages aside, and after how many receives."""

    dead_letter_url: str
    max_receive_count: int

    @property
    def dead_letter_name(self) -> str:
        """The name of the queue that they are put into."""
        return self.dead_letter_url.rpartition("/")[2]


async def send(aws: Aws, url: str, entries: Sequence[SqsEntry]) -> list[str | AirunnerError]:
    """Send messages in their order; return for each its id, or why it was not sent.

    InvalidArgument is for one that SQS refuses for what it holds. All messages of a call that fails as a
    whole have one and the same error. A send whose reply is lost is repeated, so that a message may be there
    twice.
    """
    sent: list[str | AirunnerError] = []
    for together in split_by_size(entries, lambda entry: entry.size, _CALL_BYTES):
        for some in split_by_count(together, MAX_ENTRIES):
            sent += await _send(aws, url, some)
    return sent


async def receive(
    aws: Aws,
    url: str,
    max_messages: int,
    *,
    visibility_seconds: int,
    wait_seconds: int = 0,
    system_attributes: Sequence[str] = (),
    attributes: Sequence[str] = (),
) -> list[SqsMessage]:
    """Return up to ten messages, which nobody else receives for a while; wait for the first, if told to.

    `system_attributes` are ApproximateReceiveCount and SentTimestamp. Cancelling the call, or losing its
    reply, may leave messages hidden until that while is over.
    """
    wanted: dict[str, Any] = {
        "MaxNumberOfMessages": min(max_messages, MAX_ENTRIES),
        "WaitTimeSeconds": wait_seconds,
        "VisibilityTimeout": visibility_seconds,
    }
    if system_attributes:
        wanted["AttributeNames"] = list(system_attributes)
    if attributes:
        wanted["MessageAttributeNames"] = list(attributes)
    answer = await aws.sqs("ReceiveMessage", wait_seconds=wait_seconds, QueueUrl=url, **wanted)
    return [_message(message) for message in answer.get("Messages", ())]


async def change_visibility(
    aws: Aws, url: str, receipts: Sequence[str], seconds: int
) -> list[AirunnerError | None]:
    """Hide received messages for so long from now, 0 shows them; return for each why it failed, if it did."""
    entries = [{"ReceiptHandle": receipt, "VisibilityTimeout": seconds} for receipt in receipts]
    outcomes: list[AirunnerError | None] = []
    for some in split_by_count(entries, MAX_ENTRIES):
        outcomes += _errors(await _perform(aws, "ChangeMessageVisibilityBatch", url, some))
    return outcomes


async def delete(aws: Aws, url: str, receipts: Sequence[str]) -> list[AirunnerError | None]:
    """Delete received messages; return for each why it failed, if it did.

    A receipt that is not the newest of its message any more deletes nothing, and that is no failure.
    """
    entries = [{"ReceiptHandle": receipt} for receipt in receipts]
    outcomes: list[AirunnerError | None] = []
    for some in split_by_count(entries, MAX_ENTRIES):
        outcomes += _errors(await _perform(aws, "DeleteMessageBatch", url, some))
    return outcomes


async def count_messages(aws: Aws, url: str) -> dict[str, int]:
    """Return about how many messages of a queue are `visible`, `in_flight` and `delayed`."""
    answer = await aws.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=list(_COUNTS.values()))
    return {name: int(answer["Attributes"].get(attribute, 0)) for name, attribute in _COUNTS.items()}


async def find_queue(aws: Aws, name: str) -> str:
    """Return the URL of the queue of this name, empty if there is none."""
    try:
        return str((await aws.sqs("GetQueueUrl", QueueName=name))["QueueUrl"])
    except Refused as error:
        if not is_missing_queue(error):
            raise
        return ""


def is_missing_queue(refused: Refused) -> bool:
    """Return whether a call was refused since there is no such queue."""
    return any(code in refused.code for code in _NO_QUEUE_CODES)


async def read_redrive_policy(aws: Aws, url: str) -> RedrivePolicy | None:
    """Return what a queue does with messages that were received too often, None if nothing."""
    answer = await aws.sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=["RedrivePolicy"])
    text = answer.get("Attributes", {}).get("RedrivePolicy")
    if not text:
        return None
    found = json.loads(text)
    # A queue and its dead-letter queue are of one account and region.
    name = found["deadLetterTargetArn"].rpartition(":")[2]
    return RedrivePolicy(
        dead_letter_url=f"{url.rpartition('/')[0]}/{name}", max_receive_count=int(found["maxReceiveCount"])
    )


def is_gone(error: AirunnerError) -> bool:
    """Return whether SQS refused a receipt because it holds its message no more."""
    return isinstance(error, Refused) and error.code in _GONE_CODES


async def _send(aws: Aws, url: str, entries: Sequence[SqsEntry]) -> list[str | AirunnerError]:
    """Send what one call takes."""
    outcomes: list[dict[str, Any] | AirunnerError]
    if len(entries) > 1:
        arguments = [entry.arguments() for entry in entries]
        outcomes = await _perform(aws, "SendMessageBatch", url, arguments)
    else:
        try:
            outcomes = [await aws.sqs("SendMessage", QueueUrl=url, **entries[0].arguments())]
        except AirunnerError as error:
            outcomes = [error]
    return [
        _refusal(outcome) if isinstance(outcome, AirunnerError) else outcome["MessageId"]
        for outcome in outcomes
    ]


async def _perform(
    aws: Aws, operation: str, url: str, entries: Sequence[dict[str, Any]]
) -> list[dict[str, Any] | AirunnerError]:
    """Make one call; return for each entry what SQS answered, or why it failed."""
    numbered = [{"Id": str(number), **entry} for number, entry in enumerate(entries)]
    try:
        answer = await aws.sqs(operation, QueueUrl=url, Entries=numbered)
    except AirunnerError as error:
        return [error] * len(entries)
    done = {entry["Id"]: entry for entry in answer.get("Successful", ())}
    failed = {entry["Id"]: read_failed_entry(entry) for entry in answer.get("Failed", ())}
    return [
        failed.get(entry["Id"]) or done.get(entry["Id"]) or Unavailable("SQS does not mention an entry.")
        for entry in numbered
    ]


def _errors(outcomes: Sequence[dict[str, Any] | AirunnerError]) -> list[AirunnerError | None]:
    return [outcome if isinstance(outcome, AirunnerError) else None for outcome in outcomes]


def _refusal(error: AirunnerError) -> AirunnerError:
    if isinstance(error, Refused) and error.code in _CONTENT_CODES:
        return InvalidArgument(f"SQS does not take the message: {error.code}")
    return error


def _message(message: dict[str, Any]) -> SqsMessage:
    system = message.get("Attributes", {})
    attributes = message.get("MessageAttributes", {})
    return SqsMessage(
        message_id=message["MessageId"],
        body=message["Body"],
        receipt=message["ReceiptHandle"],
        receive_count=int(system.get("ApproximateReceiveCount", 0)),
        sent_at=int(system.get("SentTimestamp", 0)),
        attributes={
            name: value["StringValue"] for name, value in attributes.items() if "StringValue" in value
        },
    )


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
