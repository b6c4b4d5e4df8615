"""Queues as a whole: new and deleted ones, and how they are encrypted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.doubles.aws.calls import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.doubles.aws.calls import Call
    from tests.doubles.aws.conditions import Conditions
    from tests.doubles.aws.wire import AwsAnswer

    Send = Callable[[Call], Awaitable[AwsAnswer]]

_KEY: Final = "KmsMasterKeyId"
_MANAGED: Final = "SqsManagedSseEnabled"
_NOT_THERE: Final = Refusal(code="QueueDoesNotExist", message="The specified queue does not exist.")
_DELETED: Final = Refusal(
    code="QueueDeletedRecently",
    message="You must wait 60 seconds after deleting a queue before you can create another of that name.",
)
_TWO_ENCRYPTIONS: Final = Refusal(
    code="InvalidAttributeValue",
    message="You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE"
    " or SQS SSE.",
)


class Queues:
    """What SQS knows of queues by their names."""

    def __init__(self, now: Callable[[], float], conditions: Conditions) -> None:
        self._now = now
        self._conditions = conditions
        self._created: dict[str, float] = {}
        self._deleted: dict[str, float] = {}

    async def refusal(self, call: Call, send: Send) -> Refusal | None:
        """Return why a call is refused for the queue that it names."""
        name = _name(call)
        if call.operation == "CreateQueue":
            is_too_soon = self._now() < self._deleted.get(name, 0) + self._conditions.deleted_queue_seconds
            is_deleted = name in self._deleted and is_too_soon
            return _DELETED if is_deleted else _encryption_refusal(_attributes(call), {})
        made_at = self._created.get(name)
        if made_at is not None and self._now() < made_at + self._conditions.new_queue_seconds:
            return _NOT_THERE
        if call.operation == "SetQueueAttributes" and _attributes(call).get(_MANAGED) == "true":
            return _encryption_refusal(_attributes(call), await _encryption(call, send))
        return None

    def completed(self, call: Call) -> Call:
        """Return the call with what else it does on AWS: a key of KMS takes the place of SQS's own."""
        attributes = _attributes(call)
        if not attributes.get(_KEY):
            return call
        return call.with_body(call.body | {"Attributes": {_MANAGED: "false", **attributes}})

    def performed(self, call: Call) -> None:
        """Note that a queue was made or deleted."""
        if call.operation == "CreateQueue":
            self._created.setdefault(_name(call), self._now())
            self._deleted.pop(_name(call), None)
        elif call.operation == "DeleteQueue":
            self._created.pop(_name(call), None)
            self._deleted[_name(call)] = self._now()


def _encryption_refusal(wanted: dict[str, str], found: dict[str, str]) -> Refusal | None:
    after = found | wanted
    return _TWO_ENCRYPTIONS if after.get(_KEY) and after.get(_MANAGED) == "true" else None


async def _encryption(call: Call, send: Send) -> dict[str, str]:
    """Return how a queue is encrypted."""
    arguments = {"QueueUrl": call.body["QueueUrl"], "AttributeNames": [_KEY, _MANAGED]}
    answer = await send(call.beside("GetQueueAttributes", arguments))
    found: dict[str, str] = json.loads(answer.body).get("Attributes", {})
    return found


def _attributes(call: Call) -> dict[str, Any]:
    return call.body.get("Attributes") or {}


def _name(call: Call) -> str:
    return str(call.body.get("QueueName") or call.body.get("QueueUrl", "").rpartition("/")[2])
