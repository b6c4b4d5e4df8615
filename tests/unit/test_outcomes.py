"""Entries of a batch are refused one by one, and every outcome finds its entry."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.domain.errors import AirunnerError, InternalError, InvalidArgument, NotFound, Unavailable
from airunner.domain.outcomes import prepare_entries, send_entries, single


class Receiver:
    """Takes even numbers, and remembers its calls."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    async def send(self, numbers: Sequence[int]) -> list[str | AirunnerError]:
        self.calls.append(list(numbers))
        return [str(number) if number % 2 == 0 else NotFound(str(number)) for number in numbers]


def prepare(number: int) -> int:
    if number < 0:
        raise InvalidArgument(str(number))
    return number


@given(st.lists(st.integers(-5, 5)))
async def test_every_outcome_is_that_of_its_entry(numbers: list[int]) -> None:
    receiver = Receiver()
    outcomes = await send_entries(prepare_entries(numbers, prepare), receiver.send)
    assert [str(outcome) for outcome in outcomes] == list(map(str, numbers))
    for number, outcome in zip(numbers, outcomes, strict=True):
        expected = InvalidArgument if number < 0 else NotFound if number % 2 else str
        assert type(outcome) is expected


@pytest.mark.parametrize(
    ("numbers", "calls"), [([], [[]]), ([-1], []), ([-1, -2], []), ([1, -1, 2], [[1, 2]])]
)
async def test_nothing_is_sent_when_all_are_refused(numbers: list[int], calls: list[list[int]]) -> None:
    receiver = Receiver()
    await send_entries(prepare_entries(numbers, prepare), receiver.send)
    assert receiver.calls == calls


async def test_an_error_of_the_whole_call_is_raised() -> None:
    async def send(_: Sequence[int]) -> list[str]:
        raise Unavailable

    with pytest.raises(Unavailable):
        await send_entries(prepare_entries([1, -1], prepare), send)


@pytest.mark.parametrize("answers", [[], ["one", "two", "three"]])
async def test_outcomes_that_do_not_fit_are_given_to_nobody(answers: list[str]) -> None:
    async def send(_: Sequence[int]) -> list[str]:
        return answers

    with pytest.raises(InternalError, match="2 entries"):
        await send_entries(prepare_entries([1, -1, 2], prepare), send)


def test_other_errors_of_the_preparation_are_raised() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        prepare_entries(["1", "x"], int)


def test_the_outcome_of_the_one_entry_is_returned_or_raised() -> None:
    assert single(["yes"]) == "yes"
    with pytest.raises(NotFound):
        single([NotFound()])
