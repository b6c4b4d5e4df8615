"""A reader's side of batching: events go in as batches or one by one, and come out one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airunner.domain.batching import unpack

if TYPE_CHECKING:
    from airunner.domain.event import Event


class EventBuffer:
    """Unpacked events from a sequence on, with a read position that can be moved back.

    Of one attempt: sequences ascend in it. It keeps what it was given until `forget`.
    """

    def __init__(self, from_sequence: int = 1) -> None:
        self._from_sequence = from_sequence
        self._events: list[Event] = []
        self._read = 0
        self._last_timestamp = 0

    def __len__(self) -> int:
        """Return how many events are still to be read."""
        return len(self._events) - self._read

    def add(self, event: Event) -> None:
        """Take a batch or a single event; what is before the wanted sequence is skipped."""
        for single in unpack(event, not_before=self._last_timestamp):
            self._last_timestamp = max(self._last_timestamp, single.timestamp)
            if single.last_sequence >= self._from_sequence:
                # The clock of a worker may have been set back between two publishes.
                self._events.append(replace(single, timestamp=self._last_timestamp))

    def next(self) -> Event | None:
        """Return the next event, None when all were read."""
        if self._read >= len(self._events):
            return None
        self._read += 1
        return self._events[self._read - 1]

    def rewind(self, to_sequence: int) -> None:
        """Read again from the first kept event at or after `to_sequence`."""
        for index, event in enumerate(self._events):
            if event.last_sequence >= to_sequence:
                self._read = index
                return
        self._read = len(self._events)

    def forget(self) -> None:
        """Drop what has been read."""
        del self._events[: self._read]
        self._read = 0
