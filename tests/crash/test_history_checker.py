from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from airunner.domain.event import (
    Event,
    EventData,
    Gap,
    Output,
    OutputBatch,
    ProcessEnd,
    ProcessStart,
    StreamType,
)
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import Job, JobParams, JobResult, JobState, Outcome
from airunner.domain.lifecycle import Lifecycle
from tests.support.history import History, Reading, Watch, Written, problems

JOB = "018f0000-0000-7000-8000-000000000001"
OUT, ERR = b"one\ntwo\n", b"oops\n"
IN_ORDER = b"one\noops\ntwo\n"
DIGEST = hashlib.sha256(IN_ORDER).digest()
END = ProcessEnd(pid=7, exit_code=0, run_duration_ms=5, event_count=4, output_sha256=DIGEST)
RESULT = JobResult(success=True, outcome=Outcome.SUCCESS, final_sequence=5, output_sha256=DIGEST)


def test_a_good_history_has_no_problems() -> None:
    assert problems(good_history(), ended()) == []


def test_attempts_that_died_leave_the_beginning_of_their_output() -> None:
    died = [event(1, ProcessStart(pid=6, started_at=1)), event(2, Output(b"one\n"))]
    history = two_attempts(first=died)

    assert problems(history, ended(attempt=2)) == []


def test_a_batch_counts_with_all_its_sequences() -> None:
    history = good_history()
    outputs = (Output(b"one\n"), Output(b"oops\n", StreamType.STDERR), Output(b"two\n"))
    batch = OutputBatch(outputs=outputs, start_sequence=2, end_sequence=4)
    history.watches[0].events[1:4] = [event(2, batch)]

    assert problems(history, ended()) == []


def test_a_job_that_is_gone_is_found() -> None:
    assert problems(good_history(), {}) == [f"{JOB}: accepted, but gone"]


def test_a_job_that_was_handed_out_and_is_gone_is_found() -> None:
    history = History()
    history.claim(ended()[JOB])

    assert problems(history, {}) == [f"{JOB}: accepted, but gone"]


def test_a_job_whose_retention_is_over_has_to_be_gone() -> None:
    history = good_history()
    history.purge(JOB)

    assert problems(history, {}) == []
    assert problems(history, ended()) == [f"{JOB}: to be purged, but still there"]


def test_an_attempt_that_is_handed_out_twice_is_found() -> None:
    history = good_history()
    running = ended(state=JobState.RUNNING, result=None)[JOB]
    history.claim(running)
    assert problems(history, ended()) == []

    history.claim(running)
    assert problems(history, ended()) == [f"{JOB}: attempt 1 was handed out 2 times"]


@pytest.mark.parametrize("state", [JobState.SCHEDULED, JobState.RUNNING])
def test_a_job_that_never_ended_is_found(state: JobState) -> None:
    assert found_in(good_history(), ended(state=state, result=None), "never ended")


@pytest.mark.parametrize(
    "later",
    [
        Reading(job_id=JOB, state=JobState.RUNNING, attempt=1),
        Reading(job_id=JOB, state=JobState.FAILED, attempt=1),
        Reading(job_id=JOB, state=JobState.COMPLETED, attempt=2),
    ],
)
def test_a_job_that_changes_after_its_end_is_found(later: Reading) -> None:
    history = good_history()
    history.readings += [Reading(job_id=JOB, state=JobState.COMPLETED, attempt=1), later]

    assert found_in(history, ended(), "then became")


def test_an_attempt_that_falls_is_found() -> None:
    history = good_history()
    history.readings.append(Reading(job_id=JOB, state=JobState.RUNNING, attempt=2))

    assert found_in(history, ended(), "attempt 1 after 2")


def drop(position: int) -> Callable[[list[Event]], None]:
    return lambda events: events.__delitem__(position)


def repeat(position: int) -> Callable[[list[Event]], None]:
    return lambda events: events.insert(position, events[position])


def swap(first: int, second: int) -> Callable[[list[Event]], None]:
    def swapped(events: list[Event]) -> None:
        events[first], events[second] = events[second], events[first]

    return swapped


def say(position: int, data: EventData) -> Callable[[list[Event]], None]:
    return lambda events: events.__setitem__(position, replace(events[position], data=data))


def in_attempt(position: int, attempt: int) -> Callable[[list[Event]], None]:
    return lambda events: events.__setitem__(position, replace(events[position], attempt=attempt))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (drop(0), "expected (1, 1), received (1, 2)"),
        (drop(2), "expected (1, 3), received (1, 4)"),
        (repeat(2), "expected (1, 4), received (1, 3)"),
        (swap(1, 2), "expected (1, 2), received (1, 3)"),
        (in_attempt(4, 2), "expected (2, 1), received (2, 5)"),
        (in_attempt(0, 2), "expected (2, 2), received (1, 2)"),
        (say(2, Gap(first_sequence=3, last_sequence=3, reason="gone")), "a gap from 3 to 3"),
        (say(3, Output(b"twO\n")), "STDOUT has 8 bytes that are not the 8 of the process"),
        (say(3, Output(b"two\nthree\n")), "STDOUT has 14 bytes that are not the 8"),
        (say(2, Output(b"oops\n")), "STDERR has 0 bytes that are not the 5"),
        (say(4, replace(END, event_count=3)), "counts 3 events before it, not 4"),
        (say(4, replace(END, output_sha256=b"x" * 32)), "digest of other output"),
        (say(2, END), "PROCESS_END is not the one last event"),
        (drop(4), "ended after 4 of 5 events"),
        (lambda events: events.clear(), "ended after 0 of 5 events"),
    ],
)
def test_a_watcher_that_was_misled_is_found(spoil: Callable[[list[Event]], None], complaint: str) -> None:
    history = good_history()
    spoil(history.watches[0].events)

    assert found_in(history, ended(), complaint)


def test_output_that_the_unfinished_process_did_not_write_is_found() -> None:
    history = good_history()
    history.watches[0] = Watch(watcher="w", job_id=JOB, events=[event(1, Output(b"oner\n"))])

    assert found_in(history, ended(), "STDOUT has 5 bytes that are not the 8")


def test_output_of_an_attempt_without_a_process_is_found() -> None:
    history = good_history()
    history.written.clear()

    assert found_in(history, ended(), "STDOUT has 8 bytes that are not the 0")


def test_a_result_that_speaks_of_other_output_is_found() -> None:
    result = replace(RESULT, output_sha256=b"y" * 32)

    assert found_in(good_history(), ended(result=result), "the result has the digest of other output")


def test_acknowledged_events_that_are_gone_are_found() -> None:
    history = two_attempts(first=good_events()[:2])
    history.acknowledge(JOB, 1, 2)
    assert problems(history, ended(attempt=2)) == []

    history.acknowledge(JOB, 1, 3)
    history.acknowledge(JOB, 1, 1)
    assert found_in(history, ended(attempt=2), "attempt 1: ended after 2 of 3 events that were known")


def test_an_attempt_of_which_all_that_was_acknowledged_is_gone_is_found() -> None:
    history = two_attempts(first=[])
    history.acknowledge(JOB, 1, 3)

    assert found_in(history, ended(attempt=2), "attempt 1: ended after 0 of 3 events that were known")


def test_events_that_only_others_have_seen_are_found() -> None:
    history = two_attempts(first=good_events()[:2])
    history.watch("other", JOB).events += good_events()[:3]

    assert found_in(history, ended(attempt=2), "attempt 1: ended after 2 of 3 events that were known")


def test_who_was_not_told_the_end_may_have_less() -> None:
    history = good_history()
    history.acknowledge(JOB, 1, 5)
    history.watch("other", JOB).events += good_events()[:3]

    assert problems(history, ended()) == []


def test_watchers_that_contradict_each_other_are_found() -> None:
    history = good_history()
    other = history.watch("other", JOB)
    other.events.append(event(1, ProcessStart(pid=8, started_at=1)))

    assert found_in(history, ended(), "(1, 1) differs from what others saw")


def found_in(history: History, jobs: dict[str, Job], complaint: str) -> bool:
    found = problems(history, jobs)
    assert any(complaint in problem for problem in found), found
    return True


def good_history() -> History:
    history = History()
    history.accept(JOB)
    history.readings.append(Reading(job_id=JOB, state=JobState.RUNNING, attempt=1))
    watch = history.watch("w", JOB)
    watch.events += good_events()
    watch.ended = True
    history.written[JOB, 1] = Written(stdout=OUT, stderr=ERR)
    return history


def two_attempts(*, first: list[Event]) -> History:
    """The first attempt died after some events, the second one is good."""
    history = good_history()
    history.watches[0].events[:] = [*first, *(replace(one, attempt=2) for one in good_events())]
    history.written[JOB, 2] = history.written[JOB, 1]
    return history


def good_events() -> list[Event]:
    return [
        event(1, ProcessStart(pid=7, started_at=1)),
        event(2, Output(b"one\n")),
        event(3, Output(b"oops\n", StreamType.STDERR)),
        event(4, Output(b"two\n")),
        event(5, END),
    ]


def event(sequence: int, data: EventData) -> Event:
    return Event(sequence=sequence, timestamp=1000 + sequence, data=data, attempt=1)


def ended(
    *, state: JobState = JobState.COMPLETED, attempt: int = 1, result: JobResult | None = RESULT
) -> dict[str, Job]:
    job = Job(
        job_id=JOB,
        queue="q",
        params=JobParams(command="true"),
        execution=ExecutionConfig(),
        created_at=1,
        request_id=JOB,
        principal="p",
        life=Lifecycle(state=state, attempt=attempt, result=result, max_attempts=3, due_at=1, updated_at=1),
    )
    return {JOB: job}
