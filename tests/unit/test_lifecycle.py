from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
claimed = lifecycle.claim(scheduled, now=NOW, visibility_seconds=60, worker_id="w", instance_id="i")
single_try = replace(claimed, max_attempts=1)
running = lifecycle.extend(claimed, 1, now=NOW, visibility_seconds=0)
cancelling = lifecycle.cancel(running, now=NOW)
last_try = replace(running, attempt=3)
lapsed = replace(running, visible_until=NOW - 1)
lost = replace(last_try, visible_until=NOW)
cancelled_and_gone = replace(cancelling, visible_until=NOW)
completed = lifecycle.finish(running, 1, SUCCESS, (), now=NOW)[0]
failed = lifecycle.finish(running, 1, FAILURE, (), now=NOW)[0]
cancelled = lifecycle.cancel(scheduled, now=NOW)

Step = Callable[[Lifecycle], Lifecycle]


def complete(result: JobResult, attempt: int = 1) -> Step:
    return lambda life: lifecycle.finish(life, attempt, result, (), now=NOW)[0]


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
    ("silent on its last try", single_try, single_try.visible_until),
    ("silent for the second time", replace(single_try, silent_attempts=2), single_try.visible_until),
    ("silent for the third time", replace(single_try, silent_attempts=3), None),
    ("silent and cancelled", lifecycle.cancel(claimed, now=NOW), None),
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


def claim(life: Lifecycle, *, first_lease_seconds: int = 0, now: int = NOW) -> Lifecycle:
    return lifecycle.claim(
        life,
        now=now,
        visibility_seconds=60,
        first_lease_seconds=first_lease_seconds,
        worker_id="",
        instance_id="",
    )


@pytest.mark.parametrize(("first_lease_seconds", "lease_seconds"), [(0, 60), (30, 30), (60, 60), (90, 60)])
def test_a_first_lease_is_at_most_the_visibility(first_lease_seconds: int, lease_seconds: int) -> None:
    life = claim(scheduled, first_lease_seconds=first_lease_seconds)
    assert (life.visible_until, life.visibility_seconds) == (NOW + lease_seconds * 1000, 60)
    assert extend(life).visible_until == NOW + 60_000
    assert lifecycle.survive_downtime(life, now=NOW).visible_until == NOW + 60_000


def test_two_silent_lapses_in_a_row_cost_no_try_and_those_after_them_do() -> None:
    life = scheduled
    left = []
    while life.claimable_from is not None:
        life = claim(life)
        left.append(life.tries_left)
    assert left == [2, 2, 2, 1, 0]
    assert expire(life).state is JobState.RUNNING
    over = lifecycle.expire(life, now=life.visible_until)
    assert over.result is not None
    assert over.result.outcome is Outcome.LOST


SIGNS: list[tuple[str, Step]] = [
    ("a beat", lambda life: lifecycle.extend(life, life.attempt, now=NOW, visibility_seconds=0)),
    ("an event", lambda life: lifecycle.append(life, life.attempt, [event(1, 1)], now=NOW)[0]),
    ("a release", lambda life: release(attempt=life.attempt)(life)),
]


@pytest.mark.parametrize("sign", [row[1] for row in SIGNS], ids=[row[0] for row in SIGNS])
def test_a_sign_makes_its_attempt_count_and_later_lapses_free_again(sign: Step) -> None:
    life = replace(claim(claim(claim(scheduled))), max_attempts=9)
    assert (life.attempt, life.handed_back) == (3, 2)
    life = claim(sign(life))
    assert (life.attempt, life.handed_back) == (4, 2)
    assert claim(claim(claim(life))).handed_back == 4


def test_handing_back_is_no_sign_and_no_lapse() -> None:
    life = claim(claim(scheduled))
    for attempt in (2, 3, 4):
        life = claim(release(unstarted=True, attempt=attempt)(life))
    # One lapse and three that were handed back; the second lapse is free, the third one is not.
    assert (life.attempt, life.handed_back, life.lapse_is_free) == (5, 4, True)
    assert claim(life).handed_back == 5
    assert claim(claim(life)).handed_back == 5


def test_an_event_that_is_stored_already_is_no_news() -> None:
    seen = replace(claimed, last_sequence=1)
    assert lifecycle.append(seen, 1, [event(1, 1)], now=NOW)[0] is seen


moves = st.lists(st.sampled_from(["lapse", "beat", "publish", "unstarted", "release"]), max_size=40)


@given(moves, st.integers(1, 5))
def test_whatever_happens_a_job_comes_to_its_end(steps: list[str], max_attempts: int) -> None:
    """Attempts only rise, no attempt costs more than a try, and of three silent lapses in a row one costs."""
    life = replace(scheduled, max_attempts=max_attempts)
    silent = 0
    for step in steps:
        if life.claimable_from is None:
            break
        before, life = life, claim(life)
        assert life.attempt == before.attempt + 1
        assert 0 <= life.handed_back - before.handed_back <= 1
        silent = silent + 1 if step == "lapse" else silent
        if step in ("beat", "publish"):
            life, silent = dict(SIGNS)["a beat" if step == "beat" else "an event"](life), 0
            assert not life.lapse_is_free
        elif step != "lapse":
            life = release(unstarted=step == "unstarted", attempt=life.attempt)(life)
            silent = silent if step == "unstarted" else 0
        if life.state is JobState.RUNNING:
            assert life.lapse_is_free is (0 < silent <= 2)
            assert (life.claimable_from is None) is (life.expires_at is not None)
        assert life.tries_left <= max_attempts


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
