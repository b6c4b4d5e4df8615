"""A stream's place in the events of its job, and what it needs no task of its own for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from airunner.domain.event import wanted_types
from airunner.services.caller import current_caller
from airunner.services.streams.shared_pages import SharedPage, StreamedPage, read_page
from airunner.stores.records import cut_to_first

if TYPE_CHECKING:
    from collections.abc import Callable

    from airunner.domain.clock import Clock
    from airunner.domain.requests import StreamRequest
    from airunner.services.notifier import Bell
    from airunner.stores.base import JobStore
    from airunner.stores.records import EventPage, EventQuery

SIGN_OF_LIFE_MS: Final = 15_000
"""After so long a reader hears something, if only that the stream lives: clients take silence for the end."""
_RECHECK_MS: Final = 1_000
"""For so long pages are delivered without another look at whether the caller may still see them."""
Deliver: TypeAlias = "Callable[[StreamedPage], bool]"
"""Gives a page to a reader at once; False if that is not possible now, and then nothing was given."""


class StreamPosition:
    """Where a stream has come to, beside the bell of its job."""

    def __init__(
        self, bell: Bell, query: EventQuery, request: StreamRequest, clock: Clock, deliver: Deliver | None
    ) -> None:
        """`query` is for the first page; with `deliver`, pages can be given while the stream waits."""
        self._clock = clock
        self._told_at = self._checked_at = clock.monotonic()
        self._caller = current_caller.get()
        self._bell = bell
        self._query = query
        self._wanted = wanted_types(request.event_filter)
        self._attempt = request.attempt
        self._deliver = deliver
        self.after = query.after
        self.looked = 0
        """The rings of the bell when all was seen, the state of the job included."""

    async def check_caller(self) -> None:
        """Refuse to go on for a caller whose key was revoked: Unauthenticated."""
        await self._caller.check_again()
        self._checked_at = self._clock.monotonic()

    async def look(self, store: JobStore, *, rung: bool) -> SharedPage:
        """Return what comes after the place: what was committed here since the last look, else a read.

        Unauthenticated for a caller whose key was revoked.
        """
        await self.check_caller()
        if rung and (at_hand := self._at_hand()):
            return at_hand
        if self.after is not self._query.after:
            self._query = replace(self._query, after=self.after, after_is_an_end=True)
        shared = await read_page(store, self._query, self._bell if rung else None)
        if self._query.from_timestamp and shared.page.events:
            # The place is found: what follows it is wanted, also after a clock that was set back.
            self._query = replace(self._query, from_timestamp=0)
            return SharedPage(cut_to_first(shared.page))
        return shared

    def wanted_of(self, shared: SharedPage) -> StreamedPage | None:
        """Return what the stream wants of a page, None if that is nothing."""
        events = shared.wanted(self._wanted)
        return StreamedPage(events, shared, self._wanted) if events else None

    def is_at_end(self, page: EventPage) -> bool:
        """Return whether nothing can follow a page."""
        return page.is_last_of(self._attempt)

    def pass_over(self, shared: SharedPage) -> None:
        """Go on behind a page."""
        if shared.page.events:
            self.after = shared.end

    def note_told(self) -> None:
        """Note that the reader has just got something, be it a sign of life."""
        self._told_at = self._clock.monotonic()

    def told_by(self) -> int:
        """Return by when, of the monotonic clock, the reader is to hear something again.

        Rings do not count: what they are for may be nothing that this reader wants.
        """
        return self._told_at + SIGN_OF_LIFE_MS

    def take(self) -> bool:
        """Deliver what the bell has just rung for; False if the stream has to look for itself."""
        if self._caller.recheck and self._clock.monotonic() - self._checked_at >= _RECHECK_MS:
            return False
        shared = self._at_hand() if self._deliver else None
        if shared is None or self._deliver is None or self.is_at_end(shared.page):
            return False
        wanted = self.wanted_of(shared)
        if wanted and not self._deliver(wanted):
            return False
        if wanted:
            self.note_told()
        self.pass_over(shared)
        self.looked = self._bell.rings
        return True

    def _at_hand(self) -> SharedPage | None:
        if self._query.from_timestamp or not self._bell.explains_since(self.looked):
            return None
        return self._bell.tail.after(self.after)
