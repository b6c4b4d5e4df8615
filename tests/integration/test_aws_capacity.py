"""What gives way first under load, simulated: docs/capacity.md says what the simulation prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.capacity import FEW, MANY, Finding, simulate, table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "capacity.md"


def test_the_page_shows_the_capacity_at_1000_jobs_a_second() -> None:
    assert_shown(simulate(FEW))


@pytest.mark.slow
def test_the_page_shows_the_capacity_at_10000_jobs_a_second() -> None:
    assert_shown(simulate(MANY))


def assert_shown(findings: Sequence[Finding]) -> None:
    printed = table(findings)
    print(printed)  # noqa: T201  who looks for what binds wants to see it
    shown = PAGE.read_text(encoding="utf-8").splitlines()
    missing = [row for row in printed.splitlines() if row not in shown]
    assert not missing, f"docs/capacity.md: python -m tests.support.capacity prints\n{printed}"
