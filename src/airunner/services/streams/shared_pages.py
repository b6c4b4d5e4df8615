"""Pages of events: one read, and one encoding, for all streams that wait at the same place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from airunner.domain.event import Position
from airunner.domain.record import record
from airunner.stores.records import EventPage

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from airunner.domain.event import EncodedEvent, EventType
    from airunner.domain.job import JobState
    from airunner.domain.lifecycle import Lifecycle
    from airunner.services.notifier import Bell
    from airunner.stores.base import JobStore
    from airunner.stores.records import EventQuery

T = TypeVar("T")

# What stays in memory until something happens to its job: for streams whose readers were slow.
_KEPT_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class SharedPage:
    """A page that several streams may have, with what they made of it."""

    page: EventPage
    _made: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def end(self) -> Position:
        """The position after the last of its events, of which there is one."""
        return self.once(Position, lambda: self.page.events[-1].position)

    def wanted(self, types: frozenset[EventType]) -> Sequence[EncodedEvent]:
        """Return its events of some types."""
        return self.once(types, lambda: [event for event in self.page.events if event.event_type in types])

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what `make` makes of the page, made once for all who ask with the same key."""
        if key not in self._made:
            self._made[key] = make()
        return cast("T", self._made[key])


@record
class StreamedPage:
    """Events that a stream wants, of a page that others may have too."""

    events: Sequence[EncodedEvent]
    _shared: SharedPage
    _wanted: frozenset[EventType]

    def once(self, key: Hashable, make: Callable[[Sequence[EncodedEvent]], T]) -> T:
        """Return what `make` makes of the events, once for all streams that want the same of the page."""
        return self._shared.once((key, self._wanted), lambda: make(self.events))


@dataclass(frozen=True, slots=True)
class Committed:
    """Events of an attempt that were just stored, and the state of the job then."""

    attempt: int
    state: JobState
    events: Sequence[EncodedEvent]

    @classmethod
    def by(cls, life: Lifecycle, events: Sequence[EncodedEvent], now: int) -> Committed | None:
        """Return what a call at this instant has stored; None where that is not certain.

        A repetition changes nothing, and leaves the instant of the last write.
        """
        is_new = bool(events) and life.updated_at == now and life.last_sequence == events[-1].last_sequence
        return cls(life.attempt, life.state, events) if is_new else None


class Tail:
    """The last events of a job that were committed here, without a hole; a few of them."""

    def __init__(self) -> None:
        self._attempt = 0
        self._state: JobState | None = None
        self._events: list[EncodedEvent] = []
        self._bytes = 0
        self._pages: dict[int, SharedPage] = {}

    def add(self, committed: Committed) -> bool:
        """Take what was committed; return whether it is at hand. What does not continue begins anew."""
        self._pages = {}
        events = [event.of_attempt(committed.attempt) for event in committed.events]
        if committed.attempt != self._attempt or not _continues(self._events, events[0]):
            self._events, self._bytes = [], 0
        self._attempt, self._state = committed.attempt, committed.state
        self._events += events
        self._bytes += sum(len(event.payload) for event in events)
        while self._bytes > _KEPT_BYTES and self._events:
            self._bytes -= len(self._events.pop(0).payload)
        return bool(self._events)

    def after(self, position: Position) -> SharedPage | None:
        """Return all that came after a position; None if the tail does not begin there or before."""
        if position.attempt != self._attempt or self._state is None:
            return None
        found = self._pages.get(position.sequence)
        if found is None:
            events = [event for event in self._events if event.first_sequence > position.sequence]
            if not _fits(self._events, events, position):
                return None
            page = EventPage(events=events, state=self._state, attempt=self._attempt)
            found = self._pages[position.sequence] = SharedPage(page)
        return found


async def read_page(store: JobStore, query: EventQuery, bell: Bell | None) -> SharedPage:
    """Read a page; with the bell that has rung for it, together with others who heard it.

    Whoever was not rung for reads for itself: what others have read may be older than the call.
    """

    async def read() -> SharedPage:
        return SharedPage(await store.read_events(query))

    return await (bell.look_once(query, read, keep=_is_small) if bell else read())


def _continues(events: Sequence[EncodedEvent], following: EncodedEvent) -> bool:
    return not events or events[-1].last_sequence + 1 == following.first_sequence


def _fits(all_events: Sequence[EncodedEvent], rest: Sequence[EncodedEvent], position: Position) -> bool:
    """Return whether the rest begins right behind a position, or there is none since it is the end."""
    if rest:
        return rest[0].first_sequence == position.sequence + 1
    return bool(all_events) and all_events[-1].last_sequence == position.sequence


def _is_small(shared: SharedPage) -> bool:
    page = shared.page
    return not page.full and sum(len(event.payload) for event in page.events) <= _KEPT_BYTES
