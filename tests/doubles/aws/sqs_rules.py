"""The limits of SQS; pure functions of a call or of one entry of a batch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tests.doubles.aws.calls import Refusal

if TYPE_CHECKING:
    from tests.doubles.aws.calls import Call

BATCH_LIMIT: Final = 10
MESSAGE_BYTES: Final = 1 << 20
"""Of one message and of a whole batch; 256 KiB until August 2025."""
DELAY_LIMIT: Final = 900
VISIBILITY_LIMIT: Final = 43_200
ATTRIBUTE_LIMIT: Final = 10
WAIT_LIMIT: Final = 20

_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
# What the messages of SQS may not hold: control characters but for three, surrogates, and two code points.
_FORBIDDEN: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def sqs_refusal(call: Call) -> Refusal | None:
    """Return why SQS refuses the whole call."""
    if call.operation.endswith("Batch"):
        return _of_batch(call.body.get("Entries", []))
    if call.operation == "ReceiveMessage" and not 1 <= call.body.get("MaxNumberOfMessages", 1) <= BATCH_LIMIT:
        return _out_of_range("MaxNumberOfMessages", call.body["MaxNumberOfMessages"], BATCH_LIMIT)
    if call.operation == "ReceiveMessage" and call.body.get("WaitTimeSeconds", 0) > WAIT_LIMIT:
        return _out_of_range("WaitTimeSeconds", call.body["WaitTimeSeconds"], WAIT_LIMIT)
    return entry_refusal(call.body)


def entry_refusal(entry: dict[str, Any]) -> Refusal | None:
    """Return why SQS refuses one message, change or entry."""
    if not 0 <= entry.get("DelaySeconds", 0) <= DELAY_LIMIT:
        return _out_of_range("DelaySeconds", entry["DelaySeconds"], DELAY_LIMIT)
    if not 0 <= entry.get("VisibilityTimeout", 0) <= VISIBILITY_LIMIT:
        return _out_of_range("VisibilityTimeout", entry["VisibilityTimeout"], VISIBILITY_LIMIT)
    if _message_bytes(entry) > MESSAGE_BYTES:
        return Refusal(
            code="InvalidParameterValue",
            message=f"Parameters are invalid. Message must be shorter than {MESSAGE_BYTES} bytes.",
        )
    attributes = entry.get("MessageAttributes", {})
    if len(attributes) > ATTRIBUTE_LIMIT:
        return Refusal(
            code="InvalidParameterValue",
            message=f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [10].",
        )
    texts = [attribute.get("StringValue", "") for attribute in attributes.values()]
    if not all(texts) or entry.get("MessageBody", "x") == "":
        return Refusal(code="InvalidParameterValue", message="A message or attribute must not be empty.")
    if any(_FORBIDDEN.search(text) for text in (entry.get("MessageBody", ""), *texts)):
        return Refusal(
            code="InvalidMessageContents", message="The message contains characters outside the allowed set."
        )
    return None


def _of_batch(entries: list[dict[str, Any]]) -> Refusal | None:
    ids = [entry["Id"] for entry in entries]
    total = sum(map(_message_bytes, entries))
    if not entries:
        return Refusal(code="EmptyBatchRequest", message="There should be at least one entry in the request.")
    if len(entries) > BATCH_LIMIT:
        return Refusal(
            code="TooManyEntriesInBatchRequest",
            message=f"Maximum number of entries per request are {BATCH_LIMIT}. You have sent {len(entries)}.",
        )
    if len(set(ids)) < len(ids):
        return Refusal(code="BatchEntryIdsNotDistinct", message="Two entries have the same Id.")
    if not all(_ENTRY_ID.fullmatch(one) for one in ids):
        return Refusal(
            code="InvalidBatchEntryId", message="A batch entry id can only contain A-Z a-z 0-9 - _."
        )
    if total > MESSAGE_BYTES:
        return Refusal(
            code="BatchRequestTooLong",
            message=f"Batch requests cannot be longer than {MESSAGE_BYTES} bytes. You have sent {total}.",
        )
    return None


def _message_bytes(entry: dict[str, Any]) -> int:
    attributes = entry.get("MessageAttributes", {})
    texts = [entry.get("MessageBody", ""), *attributes]
    texts += [text for attribute in attributes.values() for text in attribute.values()]
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)


def _out_of_range(parameter: str, value: int, limit: int) -> Refusal:
    return Refusal(
        code="InvalidParameterValue",
        message=f"Value {value} for parameter {parameter} is invalid. Reason: Must be <= {limit}.",
    )
