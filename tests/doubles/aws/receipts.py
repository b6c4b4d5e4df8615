"""Which receipt handles of SQS still count: the newest of each message, while the message is in flight."""

from __future__ import annotations

import itertools
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Standing(Enum):
    """What a receipt handle is worth."""

    UNKNOWN = auto()
    """Not seen here; the emulator may judge."""
    CURRENT = auto()
    LAPSED = auto()
    """The newest, but the visibility timeout is over."""
    STALE = auto()
    """The message was received again since."""
    DELETED = auto()


class _Message:
    __slots__ = ("handle", "is_deleted", "newest", "received_at", "visible_at")

    def __init__(self) -> None:
        self.received_at = 0.0
        self.handle = ""
        """What the emulator knows it by."""
        self.newest = ""
        self.visible_at = 0.0
        self.is_deleted = False


class Receipts:
    """Receipt handles of all queues, by the clock of the emulator's SQS."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._messages: dict[tuple[str, str], _Message] = {}
        self._by_handle: dict[str, _Message] = {}
        self._copies = itertools.count(1)

    def received(self, queue: str, message: dict[str, Any], visibility_seconds: float) -> None:
        """Note that the emulator delivered a message: its earlier handles are stale from now on."""
        noted = self._messages.setdefault((queue, message["MessageId"]), _Message())
        noted.handle = noted.newest = message["ReceiptHandle"]
        noted.received_at = self._now()
        noted.visible_at = noted.received_at + visibility_seconds
        noted.is_deleted = False
        self._by_handle[noted.handle] = noted

    def copied(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the message under a handle of its own, which is now the newest."""
        noted = self._by_handle[message["ReceiptHandle"]]
        noted.newest = f"{message['ReceiptHandle']}-copy-{next(self._copies)}"
        self._by_handle[noted.newest] = noted
        return message | {"ReceiptHandle": noted.newest}

    def standing(self, handle: str) -> Standing:
        """Say what a handle is worth now."""
        noted = self._by_handle.get(handle)
        if noted is None:
            return Standing.UNKNOWN
        if noted.is_deleted:
            return Standing.DELETED
        if noted.newest != handle:
            return Standing.STALE
        return Standing.CURRENT if self._now() < noted.visible_at else Standing.LAPSED

    def held_seconds(self, handle: str) -> float:
        """Return how long ago the message was received."""
        noted = self._by_handle.get(handle)
        return 0.0 if noted is None else self._now() - noted.received_at

    def in_flight(self, queue: str) -> int:
        """Return how many messages of a queue are received and neither deleted nor visible."""
        now = self._now()
        return sum(
            not noted.is_deleted and now < noted.visible_at
            for (place, _), noted in self._messages.items()
            if place == queue
        )

    def upstream(self, handle: str) -> str:
        """Return the handle that the emulator knows the message by."""
        noted = self._by_handle.get(handle)
        return handle if noted is None else noted.handle

    def deleted(self, handle: str) -> None:
        """Note that the message is gone."""
        if noted := self._by_handle.get(handle):
            noted.is_deleted = True

    def changed(self, handle: str, visibility_seconds: float) -> None:
        """Note a new visibility timeout, from now."""
        if noted := self._by_handle.get(handle):
            noted.visible_at = self._now() + visibility_seconds
