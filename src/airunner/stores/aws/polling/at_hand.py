"""Messages that came for nobody, kept for a moment for whoever comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.stores.aws.wakeups import ReceivedWake


class AtHand:
    """Messages by their queues. Who puts them here takes back what nobody took."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, ReceivedWake]] = {}

    def put(self, queue: str, messages: Sequence[ReceivedWake]) -> None:
        """Keep messages."""
        self._kept.setdefault(queue, {}).update({message.receipt: message for message in messages})

    def take(self, queue: str, wanted: int) -> list[ReceivedWake]:
        """Take some messages of a queue."""
        kept = self._kept.get(queue, {})
        return [kept.pop(receipt) for receipt in list(kept)[:wanted]]

    def take_back(self, queue: str, messages: Sequence[ReceivedWake]) -> list[ReceivedWake]:
        """Take those of these messages that are still here."""
        kept = self._kept.get(queue, {})
        return [message for message in messages if kept.pop(message.receipt, None)]
