"""How lists are divided into calls."""

from __future__ import annotations

import pytest

from airunner.domain.splitting import split_by_count, split_by_size


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
    ("entries", "divided"),
    [([], []), ([1], [[1]]), ([1, 2, 3], [[1, 2, 3]]), ([1, 2, 3, 4, 5, 6, 7], [[1, 2, 3], [4, 5, 6], [7]])],
)
def test_lists_hold_at_most_three(entries: list[int], divided: list[list[int]]) -> None:
    assert split_by_count(entries, 3) == divided
