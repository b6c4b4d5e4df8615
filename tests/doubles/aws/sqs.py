"""SQS as strict as AWS and as loose with its deliveries, on an emulator that is neither."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.doubles.aws.batches import some_of
from tests.doubles.aws.calls import Refusal, answered, refused
from tests.doubles.aws.conditions import IN_FLIGHT_LIMIT
from tests.doubles.aws.faults import FaultKind
from tests.doubles.aws.queues import Queues
from tests.doubles.aws.receipts import Receipts, Standing
from tests.doubles.aws.sqs_rules import BATCH_LIMIT, VISIBILITY_LIMIT, entry_refusal, sqs_refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tests.doubles.aws.calls import Call
    from tests.doubles.aws.conditions import Conditions
    from tests.doubles.aws.faults import Fault, Faults
    from tests.doubles.aws.wire import AwsAnswer

    Send = Callable[[Call], Awaitable[AwsAnswer]]

_ON_QUEUES: Final = frozenset({"DeleteQueue", "PurgeQueue", "SetQueueAttributes"})
_ON_HANDLES: Final = frozenset({"ChangeMessageVisibility", "DeleteMessage"})
_NOT_IN_FLIGHT: Final = Refusal(code="MessageNotInflight", message="The specified message isn't in flight.")
_EXPIRED: Final = Refusal(
    code="InvalidParameterValue",
    message="Value for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired.",
)
_GONE: Final = Refusal(
    code="InvalidParameterValue",
    message="Value for parameter ReceiptHandle is invalid. Reason: Message does not exist or is not available"
    " for visibility timeout change.",
)
_OVER_LIMIT: Final = Refusal(code="OverLimit", message="Too many messages are in flight.", status=403)
_UNAVAILABLE: Final = {
    "SenderFault": False,
    "Code": "InternalError",
    "Message": "We encountered an internal error.",
}


class StrictSqs:
    """What SQS knows beyond the emulator; shared by all proxies before one emulator."""

    def __init__(self, now: Callable[[], float], conditions: Conditions) -> None:
        self._conditions = conditions
        self._queues = Queues(now, conditions)
        self._receipts = Receipts(now)
        self._visibility_seconds: dict[str, float] = {}
        self._held: dict[str, list[_Held]] = {}

    async def perform(
        self, call: Call, send: Send, faults: Faults, befalling: Mapping[FaultKind, Fault]
    ) -> AwsAnswer:
        """Perform a call, refuse it, or do part of it."""
        if refusal := sqs_refusal(call) or await self._queues.refusal(call, send):
            return refused(call, refusal)
        if call.operation in _ON_QUEUES:
            self._visibility_seconds.pop(call.body["QueueUrl"], None)
            self._held.pop(call.body["QueueUrl"], None)
        if call.operation == "ReceiveMessage":
            return await self._receive(call, send, faults, befalling)
        if call.operation.endswith("Batch"):
            return await self._batch(call, send, faults, befalling)
        if call.operation in _ON_HANDLES:
            return await self._on_handle(call, send)
        answer = await send(self._queues.completed(call))
        if answer.status == 200:
            self._queues.performed(call)
        return answer

    async def _receive(
        self, call: Call, send: Send, faults: Faults, befalling: Mapping[FaultKind, Fault]
    ) -> AwsAnswer:
        """Deliver what is held for the queue, or else what the emulator has."""
        is_short = not call.body.get("WaitTimeSeconds")
        if FaultKind.FALSE_EMPTY in befalling or (is_short and FaultKind.SHORT_POLL_MISS in befalling):
            return answered({})
        queue, wanted = call.body["QueueUrl"], call.body.get("MaxNumberOfMessages", 1)
        if (room := self._room(queue)) <= 0:
            return refused(call, _OVER_LIMIT) if is_short else answered({})
        if wanted > room:
            wanted = room
            call = call.with_body(call.body | {"MaxNumberOfMessages": wanted})
        held = self._held.pop(queue, [])
        if not held:
            asked = {"MaxNumberOfMessages": BATCH_LIMIT} if FaultKind.REORDER in befalling else {}
            answer = await send(call.with_body(call.body | asked) if asked else call)
            if answer.status != 200:
                return answer
            held = [_Held(message) for message in json.loads(answer.body).get("Messages", [])]
            await self._note(call, held, send)
        if FaultKind.REORDER in befalling:
            faults.random.shuffle(held)
        delivered, kept = held[:wanted], held[wanted:]
        messages = [self._receipts.copied(one.message) if one.is_copy else one.message for one in delivered]
        if FaultKind.DUPLICATE in befalling:
            kept.extend(_Held(one.message, is_copy=True) for one in delivered)
        if kept:
            self._held[queue] = kept
        return answered({"Messages": messages} if messages else {})

    def _room(self, queue: str) -> int:
        """Return how many more messages of a queue may be in flight."""
        limit = self._conditions.in_flight_limit
        return limit - self._receipts.in_flight(queue) if limit < IN_FLIGHT_LIMIT else limit

    async def _note(self, call: Call, received: list[_Held], send: Send) -> None:
        if not received:
            return
        queue = call.body["QueueUrl"]
        seconds = call.body.get("VisibilityTimeout")
        if seconds is None:
            seconds = await self._default_visibility(call, send)
        for one in received:
            self._receipts.received(queue, one.message, seconds)

    async def _default_visibility(self, call: Call, send: Send) -> float:
        queue = call.body["QueueUrl"]
        if queue not in self._visibility_seconds:
            asked = {"QueueUrl": queue, "AttributeNames": ["VisibilityTimeout"]}
            answer = json.loads((await send(call.beside("GetQueueAttributes", asked))).body)
            self._visibility_seconds[queue] = float(answer["Attributes"]["VisibilityTimeout"])
        return self._visibility_seconds[queue]

    async def _on_handle(self, call: Call, send: Send) -> AwsAnswer:
        verdict = self._verdict(call.operation, call.body)
        if verdict is None:
            return answered({})
        if isinstance(verdict, Refusal):
            return refused(call, verdict)
        answer = await send(call.with_body(call.body | {"ReceiptHandle": verdict}))
        if answer.status == 200:
            self._performed(call.operation, call.body)
        return answer

    async def _batch(
        self, call: Call, send: Send, faults: Faults, befalling: Mapping[FaultKind, Fault]
    ) -> AwsAnswer:
        """Perform the entries that may pass, and answer for all of them."""
        entries, operation = call.body["Entries"], call.operation.removesuffix("Batch")
        withheld = (
            some_of(range(len(entries)), faults.random) if FaultKind.UNPROCESSED in befalling else set()
        )
        failed, successful, forwarded = [], [], []
        for number, entry in enumerate(entries):
            verdict = entry_refusal(entry) or self._verdict(operation, entry)
            if number in withheld:
                failed.append(_UNAVAILABLE | {"Id": entry["Id"]})
            elif isinstance(verdict, Refusal):
                failed.append(_failure(entry, verdict))
            elif verdict is None:
                successful.append({"Id": entry["Id"]})
            else:
                forwarded.append(entry | ({"ReceiptHandle": verdict} if verdict else {}))
        if forwarded:
            answer = await send(call.with_body(call.body | {"Entries": forwarded}))
            if answer.status != 200:
                return answer
            body = json.loads(answer.body)
            successful += body.get("Successful", [])
            failed += body.get("Failed", [])
        self._batch_performed(operation, entries, successful)
        return answered(
            {"Successful": successful, "Failed": failed} if failed else {"Successful": successful}
        )

    def _batch_performed(
        self, operation: str, entries: list[dict[str, Any]], successful: list[dict[str, Any]]
    ) -> None:
        done = {one["Id"] for one in successful}
        for entry in entries:
            if entry["Id"] in done and self._verdict(operation, entry) is not None:
                self._performed(operation, entry)

    def _verdict(self, operation: str, arguments: dict[str, Any]) -> str | Refusal | None:
        """Return the handle to pass on, why the call is refused, or None if it succeeds without effect.

        A call that has no handle passes on an empty one.
        """
        handle = arguments.get("ReceiptHandle")
        if handle is None:
            return ""
        standing = self._receipts.standing(handle)
        if operation == "DeleteMessage":
            is_idle = standing in {Standing.STALE, Standing.DELETED}
            return None if is_idle else self._receipts.upstream(handle)
        refusals = {Standing.STALE: _EXPIRED, Standing.DELETED: _GONE, Standing.LAPSED: _NOT_IN_FLIGHT}
        if refusal := refusals.get(standing):
            return refusal
        seconds = arguments["VisibilityTimeout"]
        if seconds and self._receipts.held_seconds(handle) + seconds > VISIBILITY_LIMIT:
            return _too_long(seconds)
        return self._receipts.upstream(handle)

    def _performed(self, operation: str, arguments: dict[str, Any]) -> None:
        if operation == "DeleteMessage":
            self._receipts.deleted(arguments["ReceiptHandle"])
        elif operation == "ChangeMessageVisibility":
            self._receipts.changed(arguments["ReceiptHandle"], arguments["VisibilityTimeout"])


@dataclass(frozen=True, slots=True)
class _Held:
    """A message to deliver; a copy of one that was delivered gets a handle of its own when it is."""

    message: dict[str, Any]
    is_copy: bool = False


def _too_long(seconds: int) -> Refusal:
    return Refusal(
        code="InvalidParameterValue",
        message=f"Value {seconds} for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout"
        f" for the message is beyond the limit [{VISIBILITY_LIMIT} seconds].",
    )


def _failure(entry: dict[str, Any], refusal: Refusal) -> dict[str, Any]:
    return {"Id": entry["Id"], "SenderFault": True, "Code": refusal.code, "Message": refusal.message}
