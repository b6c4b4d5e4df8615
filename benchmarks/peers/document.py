"""The table beside peers in docs/performance.md: it is written by the run that measured it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from benchmarks.harness import ROOT

PAGE: Final = ROOT / "docs/performance.md"
BEGIN: Final = "<!-- measured beside peers -->"
END: Final = "<!-- end of what was measured beside peers -->"


def write(lines: Sequence[str]) -> None:
    """Put a table in place of the one that is there."""
    PAGE.write_text(with_table(PAGE.read_text(), lines))


def with_table(page: str, lines: Sequence[str]) -> str:
    """Return a page with another table between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no {BEGIN} with {END} behind it")
    return "\n".join([f"{before}{BEGIN}", "", *lines, "", f"{END}{after}"])
