"""The events of one attempt that the server has not acknowledged yet: the one place where they are kept."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Final

from airunner.domain.event import Event, Gap, Output, OutputBatch, ProcessError, Progress

# Tags, lengths, stream and timestamp beside the bytes of an output, and the same of an event as a whole.
_OUTPUT_OVERHEAD: Final = 24
_EVENT_OVERHEAD: Final = 128


class UnpublishedEvents:
    """Events in the order of their sequences, with an upper estimate of what they take on the wire."""

    def __init__(self) -> None:
        self._events: deque[tuple[Event, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many there are; a batch is one."""
        return len(self._events)

    @property
    def size_bytes(self) -> int:
        """What all of them take on the wire."""
        return self._bytes

    def append(self, event: Event) -> None:
        """Keep the next event."""
        size = event_bytes(event)
        self._events.append((event, size))
        self._bytes += size

    def head(self, max_bytes: int) -> list[Event]:
        """Return the first events that fit together, one at least; they stay here."""
        taken: list[Event] = []
        for event, size in self._events:
            max_bytes -= size
            if taken and max_bytes < 0:
                break
            taken.append(event)
        return taken

    def all(self) -> list[Event]:
        """Return every event; they stay here."""
        return [event for event, _ in self._events]

    def drop_before(self, sequence: int) -> None:
        """Forget what is stored: all below `sequence`, be it in the middle of a batch."""
        while self._events and self._events[0][0].last_sequence < sequence:
            self._bytes -= self._events.popleft()[1]
        if self._events and self._events[0][0].sequence < sequence:
            self.replace_first(_tail(self._events[0][0], sequence))

    def replace_first(self, event: Event) -> None:
        """Put an event in the place of the first."""
        self._bytes -= self._events.popleft()[1]
        self.prepend(event)

    def prepend(self, event: Event) -> None:
        """Keep an event that comes before all others."""
        size = event_bytes(event)
        self._events.appendleft((event, size))
        self._bytes += size


def event_bytes(event: Event) -> int:
    """Estimate, from above, what an event takes on the wire."""
    match event.data:
        case OutputBatch(outputs=outputs):
            text = sum(len(output.output) for output in outputs) + _OUTPUT_OVERHEAD * len(outputs)
        case Output(output=output):
            text = len(output)
        case ProcessError(error_message=message) | Gap(reason=message) | Progress(message=message):
            text = 4 * len(message)
        case _:
            text = 0
    return _EVENT_OVERHEAD + text


def gap_event(first: int, last: int, timestamp: int, reason: str) -> Event:
    """Return the event that stands for events which are lost for good."""
    gap = Gap(first_sequence=first, last_sequence=last, reason=reason)
    return Event(sequence=first, timestamp=timestamp, data=gap)


def _tail(event: Event, sequence: int) -> Event:
    if isinstance(event.data, Gap):
        return replace(event, sequence=sequence, data=replace(event.data, first_sequence=sequence))
    if not isinstance(event.data, OutputBatch):
        return event
    batch, skipped = event.data, sequence - event.sequence
    rest = replace(
        batch,
        outputs=batch.outputs[skipped:],
        timestamps=batch.timestamps[skipped:],
        start_sequence=sequence,
    )
    return replace(event, sequence=sequence, data=rest, timestamp=(*rest.timestamps, event.timestamp)[0])
