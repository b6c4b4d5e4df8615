"""Pages of events: one read for all streams that a ring woke at the same place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from airunner.services.notifier import Bell
    from airunner.stores.base import JobStore
    from airunner.stores.records import EventPage, EventQuery

# What stays in memory until something happens to its job: for streams whose readers were slow.
_KEPT_BYTES: Final = 16 * 1024


async def read_page(store: JobStore, query: EventQuery, bell: Bell | None) -> EventPage:
    """Read a page; with the bell that has rung for it, together with others who heard it.

    Whoever was not rung for reads for itself: what others have read may be older than the call.
    """

    async def read() -> EventPage:
        return await store.read_events(query)

    return await (bell.look_once(query, read, keep=_is_small) if bell else read())


def _is_small(page: EventPage) -> bool:
    return not page.full and sum(len(event.payload) for event in page.events) <= _KEPT_BYTES
