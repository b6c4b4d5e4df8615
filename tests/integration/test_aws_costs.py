"""The page of the costs says what is counted: every read and write of a job's life."""

from __future__ import annotations

import pytest

from tests.support import costs

SLOW = {"lives"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in costs.TABLES]
)
def test_a_table_of_the_page_is_what_is_counted(name: str) -> None:
    found = costs.block(name).search(costs.PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert found[2] == costs.TABLES[name](), "python -m tests.support.costs writes it anew"


def test_a_purge_and_an_end_cost_less_than_the_deletes_they_replace() -> None:
    life = costs.count(costs.BRIEF, 0, "small")
    assert life.purge.writes == 3
    assert life.end.calls["update_item"] == 2
    assert not life.whole.calls.keys() & {"delete_item", "batch_write_item"}
