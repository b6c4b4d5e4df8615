"""What moto does otherwise than AWS, or too slowly for tests to wait for it: put right in its process."""

from __future__ import annotations

import copy
import time
import types
from typing import Any, Final

import moto.dynamodb.models
import moto.sqs.models
from moto.core.utils import unix_time
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.table import Table
from moto.sqs.exceptions import ReceiptHandleIsInvalid
from moto.sqs.models import Queue, SQSBackend

_CHANGED_IN_PLACE: Final = frozenset({"M", "L", "SS", "NS", "BS"})


class QueueClock:
    """The time that SQS goes by; it can be moved on, so that no test waits for a visibility timeout."""

    def __init__(self) -> None:
        self._ahead_seconds = 0.0
        # Reading moto's own clock is slow, and it reads it for every message of a queue with every call.
        self._started_seconds = unix_time() - time.monotonic()

    def install(self) -> None:
        vars(moto.sqs.models).update(unix_time=self._seconds, unix_time_millis=self._millis)

    def set_ahead(self, ahead_seconds: float) -> None:
        self._ahead_seconds = ahead_seconds

    def _seconds(self) -> float:
        return self._started_seconds + time.monotonic() + self._ahead_seconds

    def _millis(self) -> float:
        return self._seconds() * 1000


class QuickTransactions:
    """Rolls transactions back to a copy that costs little.

    moto copies a whole table in depth for every action of a transaction, which is minutes for a few hundred
    jobs. One copy of its items, in depth only where a write may change a value in place, does the same.
    """

    def __init__(self) -> None:
        self._copies: dict[int, Any] = {}

    def install(self) -> None:
        write = DynamoDBBackend.transact_write_items

        def transact_write_items(backend: Any, items: list[dict[str, Any]]) -> None:
            self._copies.clear()
            write(backend, items)

        type.__setattr__(DynamoDBBackend, "transact_write_items", transact_write_items)
        copying = types.SimpleNamespace(copy=copy.copy, deepcopy=self._copied)
        vars(moto.dynamodb.models)["copy"] = copying

    def _copied(self, thing: Any, memo: Any = None) -> Any:
        if not isinstance(thing, Table):
            return copy.deepcopy(thing, memo)
        if id(thing) not in self._copies:
            table = self._copies[id(thing)] = copy.copy(thing)
            table.items = copy.copy(thing.items)
            for key, kept in thing.items.items():
                ranged = isinstance(kept, dict)
                table.items[key] = {at: _item(one) for at, one in kept.items()} if ranged else _item(kept)
        return self._copies[id(thing)]


class MessageRetention:
    """Keeps messages as long as it is promised, and no longer.

    moto ends a receive at the first message whose retention is over, empty, however many stand behind it; and
    what is sent while another message is deleted is gone.
    """

    def install(self) -> None:
        receive = SQSBackend.receive_message
        delete = Queue.delete_message

        def receive_message(backend: Any, queue_name: str, *rest: Any, **options: Any) -> list[Any]:
            _expire(backend.get_queue(queue_name))
            return receive(backend, queue_name, *rest, **options)

        def delete_message(queue: Any, receipt_handle: str) -> None:
            with queue._messages_lock:  # noqa: SLF001  whoever adds a message holds it
                delete(queue, receipt_handle)

        type.__setattr__(SQSBackend, "receive_message", receive_message)
        type.__setattr__(Queue, "delete_message", delete_message)


class MessageVisibility:
    """Lets the visibility of messages be changed however long they waited in their queue.

    moto counts the 12 hours that a receive may hold a message from its sending, and refuses a whole batch for
    one message that is beyond them.
    """

    def install(self) -> None:
        def change_message_visibility(
            backend: Any, queue_name: str, receipt_handle: str, visibility_timeout: int
        ) -> None:
            queue = backend.get_queue(queue_name)
            for message in list(queue._messages):  # noqa: SLF001  the public ones are those that are visible
                if message.had_receipt_handle(receipt_handle):
                    message.change_visibility(visibility_timeout)
                    if message.visible:
                        queue.pending_messages.discard(message)
                    return
            raise ReceiptHandleIsInvalid

        type.__setattr__(SQSBackend, "change_message_visibility", change_message_visibility)


def _expire(queue: Any) -> None:
    oldest = vars(moto.sqs.models)["unix_time_millis"]() - queue.message_retention_period * 1000
    with queue._messages_lock:  # noqa: SLF001  nothing public removes a message without its receipt
        queue._messages = [kept for kept in queue._messages if kept.sent_timestamp > oldest]  # noqa: SLF001


def _item(item: Any) -> Any:
    copied = copy.copy(item)
    copied.attrs = {name: _value(value) for name, value in item.attrs.items()}
    return copied


def _value(value: Any) -> Any:
    return copy.deepcopy(value) if value.type in _CHANGED_IN_PLACE else value
