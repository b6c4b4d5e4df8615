"""The table beside peers in docs/performance.md: it is written by the run that measured it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.harness import ROOT
from benchmarks.peers.single_enqueues import BEST

PAGE: Final = ROOT / "docs/performance.md"
BEGIN: Final = "<!-- measured beside peers -->"
END: Final = "<!-- end of what was measured beside peers -->"


def write(lines: Sequence[str]) -> None:
    """Put a table in place of the one that is there."""
    PAGE.write_text(with_table(PAGE.read_text(), lines))


def write_rows(rows: Sequence[str]) -> None:
    """Put the rows of a part in place of those that are there; the others stay as they are."""
    PAGE.write_text(with_rows(PAGE.read_text(), rows))


def with_rows(page: str, rows: Sequence[str]) -> str:
    """Return a page with other rows in its table, where they tell of the same."""
    renewed = {_subject(row): row for row in rows}
    _, _, table = page.partition(BEGIN)
    lines = table.partition(END)[0].splitlines()
    unknown = renewed.keys() - {_subject(line) for line in lines}
    if unknown:
        raise ValueError(f"the table has no row of {sorted(unknown)}; it takes a run of all parts")
    return with_table(page, [renewed.get(_subject(line), line) for line in lines if line])


def _subject(row: str) -> str:
    """Return what a row tells of, whoever was the best when it was measured."""
    return row.partition(" | ")[0].removesuffix(BEST)


def with_table(page: str, lines: Sequence[str]) -> str:
    """Return a page with another table between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} with {END} behind it")
    return "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])
