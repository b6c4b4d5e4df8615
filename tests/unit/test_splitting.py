"""How lists are divided into calls."""

from __future__ import annotations

import pytest

from airunner.domain.splitting import split_by_count, split_by_size, take_by_size


@pytest.mark.parametrize(
    ("sizes", "divided"),
    [
        ([], [[]]),
        ([3], [[3]]),
        ([3, 3, 4], [[3, 3, 4]]),
        ([3, 3, 5], [[3, 3], [5]]),
        ([10, 1], [[10], [1]]),
        ([11, 1, 2], [[11], [1, 2]]),
        ([1, 11, 2], [[1], [11], [2]]),
        ([0, 0], [[0, 0]]),
    ],
)
def test_portions_hold_at_most_ten(sizes: list[int], divided: list[list[int]]) -> None:
    assert split_by_size(sizes, lambda size: size, 10) == divided


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        ([], []),
        ([3, 3, 4, 1], [3, 3, 4]),
        ([3, 3, 5, 1], [3, 3]),
        ([11, 1], [11]),
        ([0, 10, 0, 1], [0, 10, 0]),
    ],
)
def test_what_is_taken_has_at_most_ten_or_is_one(sizes: list[int], taken: list[int]) -> None:
    entries = iter(sizes)
    assert take_by_size(entries, lambda size: size, 10) == taken
    assert list(entries) == sizes[len(taken) + 1 :]


def test_none_may_be_taken_where_one_is_not_asked_for() -> None:
    assert take_by_size([11, 1], lambda size: size, 10, at_least=0) == []


@pytest.mark.parametrize(
    ("entries", "divided"),
    [([], []), ([1], [[1]]), ([1, 2, 3], [[1, 2, 3]]), ([1, 2, 3, 4, 5, 6, 7], [[1, 2, 3], [4, 5, 6], [7]])],
)
def test_lists_hold_at_most_three(entries: list[int], divided: list[list[int]]) -> None:
    assert split_by_count(entries, 3) == divided
