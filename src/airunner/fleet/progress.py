"""Whether the messages that a processor has under way get on."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airunner.domain.clock import Clock

PATIENCE_SECONDS: Final = 300.0
"""How long nothing may happen; the calls of a step take less, also where AWS does not answer them."""


class MessageProgress:
    """Remembers when something last happened to the messages under way.

    A step that failed counts as one that succeeded: whoever waits for AWS, and asks again, gets on.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._under_way = 0
        self._last_at = clock.monotonic()

    @property
    def is_stuck(self) -> bool:
        """Whether there are messages under way, and nothing has happened to any of them for too long."""
        return bool(self._under_way) and is_overdue(self._last_at, self._clock)

    def note(self) -> None:
        """Say that a step came to its end, in whatever way."""
        self._last_at = self._clock.monotonic()

    @contextmanager
    def message(self) -> Iterator[None]:
        """Have one more message under way as long as the context lasts."""
        self._under_way += 1
        self.note()
        try:
            yield
        finally:
            self._under_way -= 1
            self.note()


def is_overdue(instant: int, clock: Clock) -> bool:
    """Return whether an instant of the monotonic clock is longer ago than anything may take."""
    return clock.monotonic() - instant > PATIENCE_SECONDS * 1000
