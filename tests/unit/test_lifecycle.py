from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from airunner.domain import lifecycle
from airunner.domain.errors import AirunnerError, AttemptSuperseded, FailedPrecondition, SequenceMismatch
from airunner.domain.event import EncodedEvent, EventType
from airunner.domain.job import JobResult, JobState, Outcome
from airunner.domain.lifecycle import Lifecycle

NOW = 1_000_000
SUCCESS = JobResult(success=True, outcome=Outcome.SUCCESS)
FAILURE = JobResult(success=False, outcome=Outcome.FAILURE, exit_code=3)
INTERRUPTED = JobResult(success=False, outcome=Outcome.INTERRUPTED)
CANCELLED = JobResult(success=False, outcome=Outcome.CANCELLED)
TIMEOUT = JobResult(success=False, outcome=Outcome.TIMEOUT)

scheduled = Lifecycle(max_attempts=3, due_at=NOW, updated_at=NOW)
delayed = replace(scheduled, due_at=NOW + 5_000)
running = lifecycle.claim(scheduled, now=NOW, visibility_seconds=60, worker_id="w", instance_id="i")
cancelling = lifecycle.cancel(running, now=NOW)
last_try = replace(running, attempt=3)
lapsed = replace(running, visible_until=NOW - 1)
lost = replace(last_try, visible_until=NOW)
cancelled_and_gone = replace(cancelling, visible_until=NOW)
completed = lifecycle.complete(running, 1, SUCCESS, now=NOW)
failed = lifecycle.complete(running, 1, FAILURE, now=NOW)
cancelled = lifecycle.cancel(scheduled, now=NOW)

Step = Callable[[Lifecycle], Lifecycle]


def complete(result: JobResult, attempt: int = 1) -> Step:
    return lambda life: lifecycle.complete(life, attempt, result, now=NOW)


def release(*, unstarted: bool = False, error: str = "", delay_seconds: int = 0, attempt: int = 1) -> Step:
    return lambda life: lifecycle.release(
        life, attempt, now=NOW, delay_seconds=delay_seconds, unstarted=unstarted, error=error
    )


def cancel(life: Lifecycle) -> Lifecycle:
    return lifecycle.cancel(life, now=NOW)


def expire(life: Lifecycle) -> Lifecycle:
    return lifecycle.expire(life, now=NOW)


def extend(life: Lifecycle, attempt: int = 1) -> Lifecycle:
    return lifecycle.extend(life, attempt, now=NOW, visibility_seconds=0)


TRANSITIONS: list[tuple[str, Lifecycle, Step, JobState, Outcome | None]] = [
    ("completed with success", running, complete(SUCCESS), JobState.COMPLETED, Outcome.SUCCESS),
    ("completed with failure", running, complete(FAILURE), JobState.FAILED, Outcome.FAILURE),
    ("completed with timeout", running, complete(TIMEOUT), JobState.FAILED, Outcome.TIMEOUT),
    ("interrupted, not cancelled", running, complete(INTERRUPTED), JobState.FAILED, Outcome.INTERRUPTED),
    ("cancelled in time", cancelling, complete(CANCELLED), JobState.CANCELLED, Outcome.CANCELLED),
    ("cancelled by a signal", cancelling, complete(INTERRUPTED), JobState.CANCELLED, Outcome.INTERRUPTED),
    ("cancelled too late", cancelling, complete(SUCCESS), JobState.COMPLETED, Outcome.SUCCESS),
    ("cancelled, failed anyway", cancelling, complete(FAILURE), JobState.FAILED, Outcome.FAILURE),
    ("lapsed, yet completed", lapsed, complete(SUCCESS), JobState.COMPLETED, Outcome.SUCCESS),
    ("completed again", completed, complete(SUCCESS), JobState.COMPLETED, Outcome.SUCCESS),
    ("released", running, release(), JobState.SCHEDULED, None),
    ("released unstarted", running, release(unstarted=True), JobState.SCHEDULED, None),
    ("released with an error", running, release(error="boom"), JobState.SCHEDULED, None),
    ("released on the last try", last_try, release(attempt=3), JobState.FAILED, Outcome.INTERRUPTED),
    ("last error", last_try, release(error="boom", attempt=3), JobState.FAILED, Outcome.FAILURE),
    ("last try unstarted", last_try, release(unstarted=True, attempt=3), JobState.SCHEDULED, None),
    ("released when cancelled", cancelling, release(), JobState.CANCELLED, Outcome.CANCELLED),
    ("cancelled when scheduled", scheduled, cancel, JobState.CANCELLED, Outcome.CANCELLED),
    ("cancelled when delayed", delayed, cancel, JobState.CANCELLED, Outcome.CANCELLED),
    ("cancelled when running", running, cancel, JobState.RUNNING, None),
    ("cancelled when completed", completed, cancel, JobState.COMPLETED, Outcome.SUCCESS),
    ("cancelled when failed", failed, cancel, JobState.FAILED, Outcome.FAILURE),
    ("cancelled twice", cancelled, cancel, JobState.CANCELLED, Outcome.CANCELLED),
    ("maintained while running", running, expire, JobState.RUNNING, None),
    ("maintained while lapsed", lapsed, expire, JobState.RUNNING, None),
    ("maintained on the last try", last_try, expire, JobState.RUNNING, None),
    ("lost on the last try", lost, expire, JobState.FAILED, Outcome.LOST),
    ("lost when cancelled", cancelled_and_gone, expire, JobState.CANCELLED, Outcome.CANCELLED),
    ("maintained when over", completed, expire, JobState.COMPLETED, Outcome.SUCCESS),
    ("extended when lapsed", lapsed, extend, JobState.RUNNING, None),
]


@pytest.mark.parametrize(
    ("before", "step", "state", "outcome"),
    [row[1:] for row in TRANSITIONS],
    ids=[row[0] for row in TRANSITIONS],
)
def test_transition(before: Lifecycle, step: Step, state: JobState, outcome: Outcome | None) -> None:
    after = step(before)
    assert after.state is state
    assert (after.result.outcome if after.result else None) is outcome
    assert bool(after.finished_at) is state.terminal
    assert after.attempt == before.attempt
    if state is not JobState.RUNNING:
        assert after.visible_until == 0


REFUSED: list[tuple[str, Lifecycle, Step, type[AirunnerError]]] = [
    ("another result", completed, complete(FAILURE), FailedPrecondition),
    ("completed by another", replace(running, attempt=2), complete(SUCCESS), AttemptSuperseded),
    ("completed before any claim", scheduled, complete(SUCCESS), AttemptSuperseded),
    ("cancelled, then completed", cancel(release()(running)), complete(SUCCESS), AttemptSuperseded),
    ("lost, then completed", expire(lost), complete(SUCCESS, 3), AttemptSuperseded),
    ("completed, then released", completed, release(), AttemptSuperseded),
    ("released twice", release()(running), release(), AttemptSuperseded),
    ("released, then completed", release()(running), complete(SUCCESS), AttemptSuperseded),
    ("begun, then unstarted", replace(running, last_sequence=1), release(unstarted=True), FailedPrecondition),
    ("completed, then extended", completed, extend, AttemptSuperseded),
    ("superseded, then extended", replace(running, attempt=2), extend, AttemptSuperseded),
    ("events missing", running, complete(replace(SUCCESS, final_sequence=5)), SequenceMismatch),
    (
        "events beyond the final one",
        replace(running, last_sequence=6),
        complete(replace(SUCCESS, final_sequence=5)),
        SequenceMismatch,
    ),
]


@pytest.mark.parametrize(
    ("before", "step", "error"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED]
)
def test_refused(before: Lifecycle, step: Step, error: type[AirunnerError]) -> None:
    with pytest.raises(error):
        step(before)


CLAIMABLE: list[tuple[str, Lifecycle, int | None]] = [
    ("scheduled", scheduled, NOW),
    ("delayed", delayed, NOW + 5_000),
    ("running", running, NOW + 60_000),
    ("lapsed", lapsed, NOW - 1),
    ("cancelled while running", cancelling, None),
    ("on its last try", last_try, None),
    ("completed", completed, None),
    ("handed back on its last try", replace(last_try, handed_back=1), last_try.visible_until),
]


@pytest.mark.parametrize(("life", "since"), [row[1:] for row in CLAIMABLE], ids=[row[0] for row in CLAIMABLE])
def test_claimable_from(life: Lifecycle, since: int | None) -> None:
    assert life.claimable_from == since


def test_a_claim_begins_a_new_attempt_with_no_events() -> None:
    after = lifecycle.claim(
        replace(lapsed, last_sequence=9), now=NOW, visibility_seconds=10, worker_id="v", instance_id="j"
    )
    assert (after.attempt, after.last_sequence, after.tries_left) == (2, 0, 1)
    assert (after.visible_until, after.visibility_seconds) == (NOW + 10_000, 10)
    assert (after.worker_id, after.instance_id) == ("v", "j")


def test_an_unstarted_attempt_costs_no_try_but_its_number_is_used() -> None:
    life = scheduled
    for number in range(1, 8):
        life = lifecycle.claim(life, now=NOW, visibility_seconds=10, worker_id="", instance_id="")
        assert (life.attempt, life.tries_left) == (number, 2)
        life = release(unstarted=True, attempt=number)(life)
        assert life.tries_left == 3


def test_a_release_is_due_after_its_delay_and_keeps_its_error() -> None:
    after = release(delay_seconds=7, error="boom")(running)
    assert after.due_at == NOW + 7_000
    assert after.last_error == "boom"
    assert (after.worker_id, after.instance_id) == ("", "")
    assert release()(replace(running, last_error="before")).last_error == "before"


def test_zero_extends_by_the_visibility_that_was_asked_for_at_dequeue() -> None:
    assert extend(lapsed).visible_until == NOW + 60_000
    longer = lifecycle.extend(running, 1, now=NOW, visibility_seconds=100)
    assert longer.visible_until == NOW + 100_000
    assert extend(longer).visible_until == NOW + 100_000


def test_downtime_gives_the_whole_visibility_but_never_takes_any() -> None:
    assert lifecycle.survive_downtime(lapsed, now=NOW).visible_until == NOW + 60_000
    long = replace(running, visible_until=NOW + 90_000)
    assert lifecycle.survive_downtime(long, now=NOW).visible_until == NOW + 90_000


def event(first: int, last: int) -> EncodedEvent:
    return EncodedEvent(
        first_sequence=first,
        last_sequence=last,
        first_timestamp=NOW,
        last_timestamp=NOW,
        event_type=EventType.OUTPUT_BATCH,
        payload=b"",
    )


@pytest.mark.parametrize(
    ("last", "events", "stored"),
    [
        (0, [(1, 1)], [(1, 1)]),
        (0, [(1, 50), (51, 51)], [(1, 50), (51, 51)]),
        (50, [(51, 60)], [(51, 60)]),
        (50, [(1, 50)], []),
        (50, [(40, 50), (51, 60)], [(51, 60)]),
        (50, [], []),
    ],
)
def test_events_that_continue_the_attempt_are_stored_once(
    last: int, events: list[tuple[int, int]], stored: list[tuple[int, int]]
) -> None:
    before = replace(running, last_sequence=last)
    after, fresh = lifecycle.append(before, 1, [event(*range_) for range_ in events], now=NOW)
    assert [(one.first_sequence, one.last_sequence) for one in fresh] == stored
    assert all(one.attempt == 1 for one in fresh)
    assert after.last_sequence == max([last, *(range_[1] for range_ in stored)])


@pytest.mark.parametrize(
    ("last", "events", "expected"),
    [
        (0, [(2, 2)], 1),
        (50, [(52, 60)], 51),
        (50, [(50, 60)], 51),
        (50, [(51, 60), (62, 62)], 61),
    ],
)
def test_a_gap_or_overlap_is_refused_with_the_expected_sequence(
    last: int, events: list[tuple[int, int]], expected: int
) -> None:
    with pytest.raises(SequenceMismatch) as refused:
        lifecycle.append(
            replace(running, last_sequence=last), 1, [event(*range_) for range_ in events], now=NOW
        )
    assert refused.value.expected == expected


@pytest.mark.parametrize("life", [scheduled, completed, replace(running, attempt=2)])
def test_events_of_another_attempt_are_refused(life: Lifecycle) -> None:
    with pytest.raises(AttemptSuperseded):
        lifecycle.append(life, 1, [event(1, 1)], now=NOW)
