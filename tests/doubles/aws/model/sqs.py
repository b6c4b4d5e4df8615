"""SQS in memory: messages that are hidden for a while, in virtual time. It grants as much as it is asked."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class _Message:
    body: str
    visible_at: float
    receipt: str = ""


class ModelSqs:
    """Queues by their addresses. Messages come in the order of their sending, also when they come again."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._numbers = itertools.count(1)
        self._queues: dict[str, dict[int, _Message]] = {}

    def get_queue_url(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {"QueueUrl": arguments["QueueName"]}

    def get_queue_attributes(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        messages = self._messages(arguments).values()
        visible = sum(message.visible_at <= self._now() for message in messages)
        counts = {
            "ApproximateNumberOfMessages": visible,
            "ApproximateNumberOfMessagesNotVisible": len(messages) - visible,
            "ApproximateNumberOfMessagesDelayed": 0,
        }
        return {"Attributes": {name: str(count) for name, count in counts.items()}}

    def send_message(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        number = next(self._numbers)
        delay = arguments.get("DelaySeconds", 0)
        self._messages(arguments)[number] = _Message(arguments["MessageBody"], self._now() + delay)
        return {"MessageId": str(number)}

    def send_message_batch(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        queue = {"QueueUrl": arguments["QueueUrl"]}
        return {
            "Successful": [
                {"Id": entry["Id"], **self.send_message({**entry, **queue})} for entry in arguments["Entries"]
            ]
        }

    async def receive_message(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Wait as long as is asked, in steps of a tenth of a second."""
        give_up_at = self._now() + arguments.get("WaitTimeSeconds", 0)
        while not (found := self._received(arguments)) and self._now() < give_up_at:
            await asyncio.sleep(0.1)
        return {"Messages": found} if found else {}

    def change_message_visibility_batch(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        for entry in arguments["Entries"]:
            if message := self._held(arguments, entry):
                message.visible_at = self._now() + entry["VisibilityTimeout"]
        return _all_done(arguments)

    def delete_message_batch(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        for entry in arguments["Entries"]:
            if self._held(arguments, entry):
                del self._messages(arguments)[_number(entry)]
        return _all_done(arguments)

    def _received(self, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for number, message in self._messages(arguments).items():
            if len(found) == arguments.get("MaxNumberOfMessages", 1):
                break
            if message.visible_at <= self._now():
                message.visible_at = self._now() + arguments["VisibilityTimeout"]
                message.receipt = f"{number}-{next(self._numbers)}"
                found.append(
                    {"MessageId": str(number), "Body": message.body, "ReceiptHandle": message.receipt}
                )
        return found

    def _held(self, arguments: Mapping[str, Any], entry: Mapping[str, Any]) -> _Message | None:
        message = self._messages(arguments).get(_number(entry))
        return message if message and message.receipt == entry["ReceiptHandle"] else None

    def _messages(self, arguments: Mapping[str, Any]) -> dict[int, _Message]:
        return self._queues.setdefault(arguments["QueueUrl"], {})


def _number(entry: Mapping[str, Any]) -> int:
    return int(entry["ReceiptHandle"].partition("-")[0])


def _all_done(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {"Successful": [{"Id": entry["Id"]} for entry in arguments["Entries"]]}
