"""Which errors end a job or a message for good: one function says so, whatever the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airunner.domain.errors import (
    JobProcessingError,
    PermanentFailure,
    Unavailable,
    error_text,
    permanent_failure,
)
from airunner.testing.conditions import until
from tests.support.consumers import working


class Mute(Exception):
    """An error that cannot even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (PermanentFailure("no_credit", "empty"), "no_credit", "empty"),
        (PermanentFailure(404, "no user 7"), "404", "no user 7"),  # type: ignore[arg-type]  # that is the point
        (JobProcessingError("no user 7", permanent=True), "permanent", "no user 7"),
        (JobProcessingError("no", permanent=True, code=404), "404", "no"),  # type: ignore[arg-type]  # that too
        (JobProcessingError("no user 7", permanent=True, code="no_user"), "no_user", "no user 7"),
        (JobProcessingError("DLQ:user_id_not_found", permanent=True), "user_id_not_found", None),
        (ValueError("DLQ:user_id_not_found"), "user_id_not_found", None),
        (ValueError("DLQ:no-credit: the account\nis empty"), "no-credit", "the account\nis empty"),
        (RuntimeError("DLQ:NO_CREDIT the account is empty"), "NO_CREDIT", "the account is empty"),
        (RuntimeError("DLQ:" + "a" * 64), "a" * 64, None),
    ],
)
def test_these_are_permanent(error: Exception, code: str, text: str | None) -> None:
    failure = permanent_failure(error)
    assert failure
    assert (failure.code, str(failure)) == (code, text or code)
    assert failure is error or failure.__cause__ is error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no good"),
        Unavailable("away"),
        JobProcessingError("the provider is away"),
        ValueError("DLQ:"),
        ValueError("DLQ: no_credit"),
        ValueError("dlq:no_credit"),
        ValueError("it said DLQ:no_credit"),
        ValueError(" DLQ:no_credit"),
        ValueError("DLQ:" + "a" * 65),
        ValueError("DLQ:no_credit\x00"),
        ValueError("DLQ:no/../credit"),
        ValueError("DLQ:<script>"),
        ValueError("DLQ:crédit"),
        ValueError("DLQ:\u0661"),
        ValueError("DLQ:no_credit\u200b"),
        KeyError("DLQ:no_credit"),
        Mute(),
        KeyboardInterrupt("DLQ:no_credit"),
    ],
    ids=repr,
)
def test_these_are_tried_again(error: BaseException) -> None:
    assert permanent_failure(error) is None


def test_an_error_that_cannot_be_shown_has_a_text_all_the_same() -> None:
    assert error_text(Mute()) == "Mute"


@given(st.text(max_size=200))
def test_whatever_a_text_says_a_code_is_a_short_word(text: str) -> None:
    for error in (ValueError(text), ValueError(f"DLQ:{text}")):
        failure = permanent_failure(error)
        if failure:
            assert failure.code.isascii()
            assert 1 <= len(failure.code) <= 64
            assert failure.code.replace("-", "_").replace("_", "a").isalnum()


@pytest.mark.parametrize(
    ("error", "dead", "released"),
    [
        (JobProcessingError("DLQ:no_user"), [("a", "no_user")], []),
        (JobProcessingError("gone", permanent=True), [("a", "permanent")], []),
        (JobProcessingError("away"), [], [("a", 1, "JobProcessingError: away")]),
        (Mute(), [], [("a", 1, "Mute")]),
    ],
    ids=repr,
)
async def test_a_consumer_does_as_it_says(
    error: Exception, dead: list[tuple[str, str]], released: list[tuple[str, int, str]]
) -> None:
    async with working() as bench:
        bench.gates.end("a", error)
        bench.source.deliver("a")
        await until(lambda: bool(bench.source.dead or bench.source.released))
        assert bench.source.dead == dead
        assert bench.source.released == released
