"""Since when a table has answered without a pause, and what follows for jobs that nobody speaks for."""

from __future__ import annotations

import pytest
import structlog

from airunner.aws.wellness import SILENCE_MS, Wellness
from airunner.domain.job import JobState
from airunner.domain.lifecycle import Lifecycle
from airunner.stores.aws.claim import SKEW_MS, MessageAction, judge, lapses_at
from airunner.testing.clock import ManualClock

SILENCE = SILENCE_MS / 1000
VISIBILITY_MS = 300_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def wellness(clock: ManualClock) -> Wellness:
    return Wellness(clock)


def test_a_replica_is_well_since_its_first_answer(wellness: Wellness, clock: ManualClock) -> None:
    clock.advance(2)
    assert (wellness.well_ms, wellness.well_since(clock.now())) == (0, clock.now())
    wellness.answered()
    began = clock.now()
    clock.advance(4)
    assert (wellness.well_ms, wellness.well_since(clock.now())) == (4_000, began)


def test_answers_that_follow_each_other_are_one_run(wellness: Wellness, clock: ManualClock) -> None:
    wellness.answered()
    began = clock.now()
    for _ in range(10):
        clock.advance(SILENCE)
        wellness.answered()
    assert wellness.well_since(clock.now()) == began


def test_silence_ends_a_run_from_its_last_answer_on_and_the_next_answer_begins_another(
    wellness: Wellness, clock: ManualClock
) -> None:
    wellness.answered()
    clock.advance(SILENCE)
    assert wellness.well_ms == SILENCE_MS
    clock.advance(0.001)
    assert wellness.well_ms == 0
    clock.advance(36_000)
    wellness.answered()
    clock.advance(1)
    assert wellness.well_ms == 1_000


@pytest.mark.parametrize("seconds", [3_600, -3_600])
def test_a_clock_that_is_set_makes_no_pause_and_hides_none(
    wellness: Wellness, clock: ManualClock, seconds: float
) -> None:
    wellness.answered()
    clock.advance(1)
    clock.step(seconds)
    wellness.answered()
    assert wellness.well_ms == 1_000
    clock.advance(SILENCE + 1)
    clock.step(-seconds)
    assert wellness.well_ms == 0
    wellness.answered()
    assert wellness.well_since(clock.now()) == clock.now()


def test_an_outage_is_logged_once_and_its_end(wellness: Wellness, clock: ManualClock) -> None:
    with structlog.testing.capture_logs() as logs:
        wellness.answered()
        clock.advance(2)
        wellness.missed("jobs does not answer")
        for _ in range(3):
            clock.advance(SILENCE)
            wellness.missed("jobs does not answer")
        wellness.answered()
        wellness.answered()
    assert [(entry["event"], entry["silent_seconds"]) for entry in logs] == [
        ("store.does_not_answer", 7.0),
        ("store.answers_again", 17.0),
    ]


def running(visible_until: int, *, tries: int = 3, cancelled: bool = False) -> Lifecycle:
    return Lifecycle(
        max_attempts=tries,
        due_at=0,
        updated_at=0,
        state=JobState.RUNNING,
        attempt=1,
        visible_until=visible_until,
        visibility_seconds=VISIBILITY_MS // 1000,
        cancel_requested=cancelled,
    )


@pytest.mark.parametrize(
    ("well_since", "lapse"),
    [
        (-1_000_000, 1_000 + SKEW_MS),
        (1_000 - VISIBILITY_MS, 1_000 + SKEW_MS),
        (1_000_000, 1_000_000 + VISIBILITY_MS + SKEW_MS),
    ],
)
def test_a_job_lapses_with_its_visibility_or_a_whole_one_after_the_outage(
    well_since: int, lapse: int
) -> None:
    life = running(1_000)
    assert lapses_at(life, well_since) == lapse
    assert judge(life, lapse, well_since) is MessageAction.CLAIM
    assert judge(life, lapse - 1, well_since) in {MessageAction.DELETE, MessageAction.LATER}


@pytest.mark.parametrize("life", [running(1_000, tries=1), running(1_000, cancelled=True)])
def test_a_job_without_a_try_or_a_wish_is_not_ended_before_its_lapse(life: Lifecycle) -> None:
    lapse = lapses_at(life, 50_000)
    assert judge(life, lapse - 1, 50_000) is MessageAction.LATER
    assert judge(life, lapse, 50_000) is MessageAction.END


def test_the_message_of_a_job_that_is_held_is_of_no_use() -> None:
    assert judge(running(1_000), 1_000 + SKEW_MS - 1, 0) is MessageAction.DELETE
