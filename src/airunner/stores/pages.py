"""Pages of a list that is newest first, by one rule on every store.

Pages are counted up to a thousand jobs and have numbers up to ten thousand; cursors lead through any number.
So no page costs more than a look at so many keys, however many jobs there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from airunner.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.listing import JobQuery

READ_SECONDS = 10
"""What a read may take, by whatever it has to wait for: longer than any that is well asked."""

K = TypeVar("K")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageBounds:
    """How far pages are counted and numbered."""

    counted: int = 1_000
    """Pages are counted up to so many jobs; what lies beyond is only known to be more."""
    numbered: int = 10_000
    """Pages have numbers up to so many jobs; cursors lead further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageKeys(Generic[K]):
    """The keys of one page. `is_followed` says that there are more behind them."""

    keys: Sequence[K]
    last_page: int
    is_followed: bool


def keys_wanted(query: JobQuery, bounds: PageBounds) -> int:
    """Return how many keys have to be known to cut a page: from the newest on, or from the cursor."""
    if query.cursor:
        return query.page_size + 1
    return min(max(bounds.counted, query.page * query.page_size) + 1, bounds.numbered + 1)


def cut_page(
    keys: Sequence[K], query: JobQuery, bounds: PageBounds, *, given_up: bool = False
) -> PageKeys[K]:
    """Return the wanted page of as many keys as `keys_wanted` says, or fewer where there are no more.

    `given_up` says that the search ended before it had seen all. The last page is told exactly as far as
    pages are counted, beyond that as the one after this, if there is one. A page that ends beyond what has
    numbers is refused.
    """
    skipped = 0 if query.cursor else (query.page - 1) * query.page_size
    end = skipped + query.page_size
    if not query.cursor and len(keys) > bounds.numbered and end > bounds.numbered:
        raise InvalidArgument(f"pages are numbered up to {bounds.numbered} jobs; use next_cursor beyond that")
    return PageKeys(
        keys=keys[skipped:end],
        last_page=_last_page(len(keys), query, bounds, given_up=given_up),
        is_followed=len(keys) > end,
    )


RUNNING_AT_ONCE: Final = 500
"""How many jobs a page of those that run has at most."""


def make_cursor(number: int) -> str:
    """Return the cursor that continues after the job of this number."""
    return f"j{number:x}"


def parse_cursor(cursor: str) -> int:
    """Return the number of a cursor."""
    try:
        if cursor[:1] == "j" and 0 <= (number := int(cursor[1:], 16)) < 2**63:
            return number
    except ValueError:
        pass
    raise InvalidArgument("cursor is not one that a response returned")


def make_queue_cursor(number: int, queue: str) -> str:
    """Return the cursor that continues after the job of this number in a queue."""
    return f"{make_cursor(number)} {queue}"


def parse_queue_cursor(cursor: str) -> tuple[int, str]:
    """Return the number and the queue of a cursor."""
    number, _, queue = cursor.partition(" ")
    return parse_cursor(number), queue


def _last_page(known: int, query: JobQuery, bounds: PageBounds, *, given_up: bool) -> int:
    if given_up:
        return query.page + 1
    if query.cursor or known > bounds.counted:
        return query.page + 1 if known > query.page * query.page_size else query.page
    # The first page exists even when it is empty.
    return max(1, -(-known // query.page_size))
