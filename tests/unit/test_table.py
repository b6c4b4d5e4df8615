"""Tables on a terminal."""

from __future__ import annotations

import re

import pytest

from airunner.cli.screen.table import shortened, table_lines, text_width

COLUMNS = ("job", "state", "command")


def test_columns_stand_below_each_other_and_lines_end_with_their_text() -> None:
    rows = [("a1", "RUNNING", "make"), ("b22", "FAILED", ""), ("字", "x\ny", "é")]
    assert list(table_lines(COLUMNS, rows, width=80, colours=False)) == [
        "job  state    command",
        "a1   RUNNING  make",
        "b22  FAILED",
        "字   x y      é",
    ]


def test_only_the_last_column_is_cut() -> None:
    rows = [("a" * 36, "RUNNING", "x" * 50)]
    assert list(table_lines(COLUMNS, rows, width=60, colours=False))[1] == f"{'a' * 36}  RUNNING  {'x' * 12}…"
    # A terminal that is too narrow for the head of a column is wrapped by itself.
    assert list(table_lines(COLUMNS, rows, width=10, colours=False))[1].startswith(
        "a" * 36 + "  RUNNING  xxxxxx…"
    )


def test_colours_take_no_room() -> None:
    rows = [("a", "FAILED", "make"), ("b", "\x1b[31mred", "")]
    plain = list(table_lines(COLUMNS, rows, width=80, colours=False))
    coloured = list(table_lines(COLUMNS, rows, width=80, colours=True))
    assert "\x1b[31mFAILED\x1b[0m" in coloured[1]
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in coloured] == plain


def test_a_table_without_rows_is_its_head() -> None:
    assert list(table_lines(COLUMNS, [], width=80, colours=False)) == ["job  state  command"]


@pytest.mark.parametrize(
    ("text", "room", "expected"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "ab…"),
        ("字字", 3, "字…"),
        ("字字", 4, "字字"),
        ("e\u0301e\u0301", 2, "e\u0301e\u0301"),
    ],
)
def test_what_is_cut_keeps_within_its_room(text: str, room: int, expected: str) -> None:
    assert shortened(text, room) == expected
    assert text_width(shortened(text, room)) <= room
