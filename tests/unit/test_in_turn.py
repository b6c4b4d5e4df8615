"""Steps that come from several threads, and in the midst of each other."""

from __future__ import annotations

import threading

import pytest

from airunner.handlers.in_turn import InTurn

LIMIT_SECONDS = 20


def test_a_step_in_the_midst_of_another_runs_behind_it() -> None:
    in_turn, done = InTurn(), list[str]()

    def outer() -> None:
        in_turn.run(lambda: done.append("inner"))
        in_turn.run(lambda: done.append("inner too"))
        done.append("outer")

    in_turn.run(outer)
    assert done == ["outer", "inner", "inner too"]
    in_turn.run(lambda: done.append("next"))
    assert done[-1] == "next"


def test_a_step_of_another_thread_waits_for_the_one_that_runs() -> None:
    in_turn, done = InTurn(), list[str]()
    other = threading.Thread(target=lambda: in_turn.run(lambda: done.append("other")), daemon=True)

    def first() -> None:
        other.start()
        in_turn.run(lambda: done.append("own"))
        done.append("first")

    in_turn.run(first)
    other.join(LIMIT_SECONDS)
    assert done == ["first", "own", "other"]


def test_a_step_that_raises_holds_up_no_other() -> None:
    in_turn, done = InTurn(), list[str]()

    def fail() -> None:
        raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        in_turn.run(fail)
    in_turn.run(lambda: done.append("next"))
    assert done == ["next"]
