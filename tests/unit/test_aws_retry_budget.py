"""How many failed tries of AWS may be repeated."""

from __future__ import annotations

import pytest

from airunner.aws.errors import ErrorKind
from airunner.aws.retry_budget import Repetitions, RetryBudget
from airunner.domain.retry import RetryPolicy

FEW, MANY = RetryPolicy(attempts=4), RetryPolicy(attempts=8)


def repetitions(budget: RetryBudget) -> Repetitions:
    return Repetitions(budget, FEW, MANY)


@pytest.mark.parametrize(
    ("kind", "repeated"),
    [
        (ErrorKind.AWAY, 3),
        (ErrorKind.TIMED_OUT, 3),
        (ErrorKind.THROTTLED, 7),
        (ErrorKind.FAULT, 0),
    ],
)
def test_what_went_wrong_says_how_many_tries_there_are(kind: ErrorKind, repeated: int) -> None:
    tries = repetitions(RetryBudget())
    assert [tries.may_follow(kind) for _ in range(repeated)] == [True] * repeated
    assert (tries.may_follow(kind), tries.is_refused) == (False, False)


@pytest.mark.parametrize(("kind", "calls"), [(ErrorKind.AWAY, 100), (ErrorKind.TIMED_OUT, 50)])
def test_a_service_that_keeps_failing_is_asked_once_for_each_call(kind: ErrorKind, calls: int) -> None:
    budget = RetryBudget()
    assert sum(repetitions(budget).may_follow(kind) for _ in range(200)) == calls
    refused = repetitions(budget)
    assert (refused.may_follow(kind), refused.is_refused) == (False, True)


def test_an_answer_gives_back_what_its_call_took_and_one_that_took_nothing_gives_one() -> None:
    budget = RetryBudget(10)
    first = repetitions(budget)
    assert [first.may_follow(ErrorKind.AWAY) for _ in range(3)] == [True, True, False]
    first.answered()
    assert repetitions(budget).may_follow(ErrorKind.TIMED_OUT)
    for _ in range(4):
        repetitions(budget).answered()
    assert not repetitions(budget).may_follow(ErrorKind.AWAY)
    repetitions(budget).answered()
    assert repetitions(budget).may_follow(ErrorKind.AWAY)


def test_there_is_never_more_than_at_first() -> None:
    budget = RetryBudget(5)
    for _ in range(100):
        repetitions(budget).answered()
    assert [repetitions(budget).may_follow(ErrorKind.AWAY) for _ in range(2)] == [True, False]
