"""Pages of a list that is newest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.domain.answers import JobPage
from airunner.domain.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.job import Job
    from airunner.domain.requests import JobQuery


def cut_page(newest_first: Sequence[tuple[int, Job]], query: JobQuery) -> JobPage:
    """Return the wanted page of numbered jobs; the numbers rise with every enqueue."""
    if query.cursor:
        before = parse_cursor(query.cursor)
        rest = [entry for entry in newest_first if entry[0] < before]
    else:
        rest = list(newest_first[(query.page - 1) * query.page_size :])
    page = rest[: query.page_size]
    return JobPage(
        jobs=[job for _, job in page],
        last_page=count_pages(len(newest_first), query.page_size),
        next_cursor=make_cursor(page[-1][0]) if len(rest) > len(page) else "",
    )


def count_pages(items: int, page_size: int) -> int:
    """Return the number of the last page; the first exists even when it is empty."""
    return max(1, -(-items // page_size))


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
    raise InvalidArgument("cursor is not one of ours")
