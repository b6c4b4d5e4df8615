"""What this server cannot read of a table: left alone, counted and named.

A newer server may have written it, so nobody deletes or changes it here, and nobody else is held up by it.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from airunner import telemetry
from airunner.domain.errors import InternalError, error_text
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from airunner.domain.clock import Clock
    from airunner.stores.aws.items import Item

T = TypeVar("T")

_log = get_logger("airunner.aws")

NAMED_EVERY_MS: Final = 10 * 60 * 1000
_MOST_REMEMBERED: Final = 1_000


class UnreadableRow(InternalError):
    """This server cannot read the job."""


class NamesInLog:
    """Keeps the log from naming a thing again and again; remembers the last thousand things."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._named: OrderedDict[str, int] = OrderedDict()

    def may_name(self, thing: str) -> bool:
        """Return whether a thing was not named in the last ten minutes; from now on it was."""
        now = self._clock.now()
        named_at = self._named.get(thing)
        if named_at is not None and 0 <= now - named_at < NAMED_EVERY_MS:
            return False
        self._named[thing] = now
        self._named.move_to_end(thing)
        if len(self._named) > _MOST_REMEMBERED:
            self._named.popitem(last=False)
        return True


class UnreadableRows:
    """Counts each look at what cannot be read, and names it in the log once in ten minutes."""

    def __init__(self, clock: Clock) -> None:
        self._names = NamesInLog(clock)

    @contextmanager
    def reading(self, kind: str, key: str) -> Iterator[None]:
        """Make whatever goes wrong in a block that only decodes an UnreadableRow, and take note of it.

        Our own errors too: to a codec, what a newer server wrote may be an invalid argument.
        """
        try:
            yield
        except UnreadableRow:
            raise
        except Exception as error:
            self.note(kind, key, error)
            raise UnreadableRow from error

    def readable(self, kind: str, items: Iterable[Item], read: Callable[[Item], T]) -> list[T]:
        """Return what can be read of items; the others are noted."""
        found: list[T] = []
        for item in items:
            try:
                found.append(read(item))
            except UnreadableRow:
                continue  # noted by whoever raised it
            except Exception as error:  # noqa: BLE001  whatever somebody wrote there
                self.note(kind, key_of(item), error)
        return found

    def note(self, kind: str, key: str, error: Exception) -> None:
        """Count one more look at it; name it unless that was done lately."""
        telemetry.store_rows_unreadable.add(1, kind)
        if self._names.may_name(f"{kind} {key}"):
            _log.error("store.row_unreadable", kind=kind, key=key, error=error_text(error))


def key_of(item: Item) -> str:
    """Return the key of an item, whatever else it has."""
    return str(item["job_id"].get("S", ""))
