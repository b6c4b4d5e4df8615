"""Why a job is where it is: each story from its facts, as entries and as one sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from airunner.cli.json_schema import why_to_json
from airunner.domain.answers import QueueStats, WorkerSeen
from airunner.domain.event import Event, EventData, Gap, ProcessEnd, ProcessError, ProcessStart, Progress
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import Job, JobParams, JobResult, JobState, Outcome
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.requests import Abilities
from airunner.reading.instants import to_iso
from airunner.reading.why.explain import JobReason, explain
from airunner.reading.why.facts import JobFacts, JobsBefore
from airunner.reading.why.timeline import EntryKind, build_timeline
from airunner.testing.factories import NOON

NOW = NOON + 600_000
NOON_TEXT = to_iso(NOON)
PARAMS = JobParams(command="make", owner="ann", timeout_seconds=90)
SERVED = (WorkerSeen(worker_id="w1", instance_id="", queues=("builds",), last_seen_at=NOW, job_ids=()),)


def job(params: JobParams = PARAMS, retried_from: str = "", **life: Any) -> Job:
    life = {"max_attempts": 3, "due_at": NOON, "updated_at": NOW - 1000, **life}
    state = life.get("state", JobState.SCHEDULED)
    return Job(
        job_id="the-job",
        queue="builds",
        params=params,
        execution=ExecutionConfig(),
        created_at=NOON,
        request_id="",
        principal="",
        retried_from=retried_from,
        life=Lifecycle(**life, finished_at=NOW - 1000 if state.terminal else 0),
    )


def running(**life: Any) -> Job:
    held = {"state": JobState.RUNNING, "attempt": 1, "worker_id": "w1", "visible_until": NOW + 30_000}
    return job(**{**held, **life})


def ended(outcome: Outcome, *, exit_code: int = 0, error: str = "", **life: Any) -> Job:
    states = {Outcome.SUCCESS: JobState.COMPLETED, Outcome.CANCELLED: JobState.CANCELLED}
    result = JobResult(
        success=outcome is Outcome.SUCCESS,
        outcome=outcome,
        exit_code=exit_code,
        error_message=error,
        started_at=NOON + 1000,
        completed_at=NOON + 4000,
    )
    state = states.get(outcome, JobState.FAILED)
    return job(**{"state": state, "attempt": 1, "worker_id": "w1", "result": result, **life})


def queue(
    *, paused: bool = False, scheduled: int = 1, active: int = 0, by: str = "", at: int = 0
) -> QueueStats:
    return QueueStats(
        name="builds",
        paused=paused,
        scheduled=scheduled,
        running=active,
        oldest_scheduled_at=NOON,
        paused_by=by,
        paused_at=at,
    )


def event(attempt: int, seconds: float, data: EventData) -> Event:
    return Event(sequence=1, timestamp=NOON + round(seconds * 1000), data=data, attempt=attempt)


def start(attempt: int, seconds: float, worker: str = "w1") -> Event:
    return event(attempt, seconds, ProcessStart(pid=4711, started_at=NOON, worker_id=worker))


def end(attempt: int, seconds: float, exit_code: int = 0) -> Event:
    return event(attempt, seconds, ProcessEnd(pid=4711, exit_code=exit_code, run_duration_ms=3000))


def error(attempt: int, seconds: float, message: str) -> Event:
    return event(attempt, seconds, ProcessError(error_message=message))


@dataclass(frozen=True, kw_only=True)
class Story:
    facts: JobFacts
    reason: JobReason
    says: str
    entries: tuple[tuple[EntryKind, str], ...] = ()
    """What the entries after the first say, as far as it matters."""


def waiting(a_job: Job, **more: Any) -> JobFacts:
    return JobFacts(job=a_job, now=NOW, **{"queue": queue(), "workers": SERVED, **more})


K, R = EntryKind, JobReason
STORIES = {
    "paused queue": Story(
        facts=waiting(job(), queue=queue(paused=True), before=JobsBefore(waiting=3)),
        reason=R.PAUSED,
        says="It waits because queue builds is paused.",
        entries=((K.PAUSED, "queue builds is paused"), (K.BEHIND, "3 jobs of queue builds before it")),
    ),
    "queue that somebody paused": Story(
        facts=waiting(job(), queue=queue(paused=True, by="ann", at=NOON)),
        reason=R.PAUSED,
        says=f"It waits because queue builds was paused by ann at {NOON_TEXT}.",
        entries=((K.PAUSED, f"queue builds was paused by ann at {NOON_TEXT}"),),
    ),
    "delayed": Story(
        facts=waiting(job(due_at=NOW + 90_000)),
        reason=R.DELAYED,
        says="It waits because it was delayed until 2023-11-14T22:24:50.000Z, in 1 min 30 s.",
        entries=((K.DELAYED, "may not begin before this: it was delayed by 11 min 30 s"),),
    ),
    "behind others": Story(
        facts=waiting(
            job(), queue=queue(scheduled=9, active=2), before=JobsBefore(waiting=8, running=("a", "b"))
        ),
        reason=R.BEHIND,
        says="It waits because 8 jobs of queue builds are before it; 2 jobs of it running.",
        entries=((K.BEHIND, "8 jobs of queue builds before it; running: a, b"),),
    ),
    "far behind others": Story(
        facts=waiting(job(), before=JobsBefore(waiting=80_000, exact=False)),
        reason=R.BEHIND,
        says="It waits because at most 80,000 jobs of queue builds are before it",
        entries=((K.BEHIND, "at most 80,000 jobs of queue builds before it"),),
    ),
    "nobody serves the queue": Story(
        facts=waiting(job(), workers=(replace(SERVED[0], queues=("other",)),)),
        reason=R.NO_WORKER,
        says="It waits because no worker of queue builds was heard of lately.",
    ),
    "nobody has the handler": Story(
        facts=waiting(
            replace(job(), params=JobParams(handler="Resize")),
            workers=(
                replace(SERVED[0], abilities=Abilities(handlers=("mail",), commands=True)),
                replace(SERVED[0], queues=("other",), abilities=Abilities(handlers=("resize",))),
            ),
            before=JobsBefore(waiting=8),
        ),
        reason=R.NO_HANDLER,
        says="It waits because no worker of queue builds has the handler Resize.",
    ),
    "nobody runs commands": Story(
        facts=waiting(
            job(), workers=(replace(SERVED[0], abilities=Abilities(handlers=("mail",)), more_handlers=9),)
        ),
        reason=R.NO_COMMANDS,
        says="It waits because no worker of queue builds runs commands.",
    ),
    "its parameters cannot be read": Story(
        facts=waiting(replace(job(params=JobParams()), abridged=True), queue=queue(paused=True)),
        reason=R.UNREADABLE,
        says="It waits because its parameters cannot be read, so that no worker gets it.",
    ),
    "its result cannot be read": Story(
        facts=JobFacts(
            job=replace(ended(Outcome.CANCELLED, result=None), params=JobParams(), abridged=True), now=NOW
        ),
        reason=R.CANCELLED,
        says="It is CANCELLED; its result cannot be read.",
    ),
    "somebody has the handler": Story(
        facts=waiting(
            replace(job(), params=JobParams(handler="Resize")),
            workers=(replace(SERVED[0], abilities=Abilities(handlers=("rESIZE",))),),
        ),
        reason=R.NEXT,
        says="It is the next of queue builds",
    ),
    "somebody may have the handler": Story(
        facts=waiting(
            replace(job(), params=JobParams(handler="zoom")),
            workers=(replace(SERVED[0], abilities=Abilities(handlers=("mail",)), more_handlers=1),),
        ),
        reason=R.NEXT,
        says="It is the next of queue builds",
    ),
    "next in line": Story(
        facts=waiting(job(), queue=queue(active=1), before=JobsBefore(running=("a",))),
        reason=R.NEXT,
        says="It is the next of queue builds and waits for a worker to be free; 1 job of it running.",
        entries=((K.BEHIND, "0 jobs of queue builds before it; running: a"),),
    ),
    "a handler that will be tried again": Story(
        facts=waiting(
            job(attempt=1, due_at=NOW + 8_000, last_error="ValueError: no such user"),
            events=[
                start(1, 1),
                error(1, 2, 'Traceback (most recent call last):\n  File "x"\nValueError: no such user\n'),
                end(1, 2, 1),
            ],
        ),
        reason=R.RETRYING,
        says="It waits until 2023-11-14T22:23:28.000Z, in 8.0 s, to be tried again after attempt 1: "
        "ValueError: no such user.",
        entries=(
            (K.BEGUN, "attempt 1 began on worker w1, pid 4711"),
            (
                K.ENDED,
                "attempt 1 ended after 3.0 s: ValueError: no such user (exit code 1); the job was given back",
            ),
            (K.RETRY, "attempt 2 may begin; 2 tries left"),
        ),
    ),
    "handed back before it began": Story(
        facts=waiting(job(attempt=1, handed_back=1)),
        reason=R.NEXT,
        says="It is the next of queue builds",
        entries=(
            (K.HANDED_BACK, "attempt 1 came back before anything was heard of it; it cost no try"),
            (K.RETRY, "attempt 2 may begin; 3 tries left"),
        ),
    ),
    "running": Story(
        facts=JobFacts(
            job=running(),
            now=NOW,
            events=[start(1, 540), event(1, 550, Progress(done=3, total=9, message="pages"))],
        ),
        reason=R.RUNNING,
        says="It runs: attempt 1 on worker w1 for 1 min 00 s.",
        entries=(
            (K.BEGUN, "attempt 1 began on worker w1, pid 4711"),
            (K.PROGRESS, "3 of 9 pages"),
            (K.VISIBILITY, "its visibility runs out, unless its worker extends it; 2 tries left then"),
        ),
    ),
    "taken, and nothing published yet": Story(
        facts=JobFacts(job=running(), now=NOW),
        reason=R.RUNNING,
        says="It runs: attempt 1 on worker w1.",
        entries=((K.BEGUN, "attempt 1 was taken by worker w1"), (K.VISIBILITY, "its visibility runs out")),
    ),
    "running again after a worker was lost": Story(
        facts=JobFacts(
            job=running(attempt=2, worker_id="w2"), now=NOW, events=[start(1, 1), start(2, 300, "w2")]
        ),
        reason=R.RUNNING,
        says="It runs: attempt 2 on worker w2 for 5 min 00 s.",
        entries=(
            (K.BEGUN, "attempt 1 began on worker w1"),
            (K.LOST, "attempt 1 was lost: worker w1 never told its end"),
            (K.BEGUN, "attempt 2 began on worker w2"),
            (K.VISIBILITY, "1 try left then"),
        ),
    ),
    "being cancelled": Story(
        facts=JobFacts(job=running(cancel_requested=True), now=NOW, events=[start(1, 1)]),
        reason=R.CANCELLING,
        says="It is being cancelled: worker w1 is to stop it.",
        entries=((K.BEGUN, ""), (K.CANCELLING, "it is to be cancelled"), (K.VISIBILITY, "")),
    ),
    "being cancelled by somebody": Story(
        facts=JobFacts(
            job=running(cancel_requested=True, cancelled_by="ann", cancelled_at=NOON + 2_000),
            now=NOW,
            events=[start(1, 1)],
        ),
        reason=R.CANCELLING,
        says=f"It was cancelled by ann at {to_iso(NOON + 2_000)}: worker w1 is to stop it.",
        entries=((K.BEGUN, ""), (K.CANCELLING, "ann cancelled it"), (K.VISIBILITY, "")),
    ),
    "answer that may never have arrived": Story(
        facts=JobFacts(
            job=running(visible_until=NOW - 5_000, max_attempts=1, silent_attempts=1), now=NOW, events=[]
        ),
        reason=R.WORKER_LOST,
        says="It waits to be begun again: worker w1 let its visibility run out 5.0 s ago.",
        entries=((K.BEGUN, ""), (K.VISIBILITY, "its visibility ran out; 1 try left then")),
    ),
    "silent worker": Story(
        facts=JobFacts(job=running(visible_until=NOW - 5_000), now=NOW, events=[start(1, 1)]),
        reason=R.WORKER_LOST,
        says="It waits to be begun again: worker w1 let its visibility run out 5.0 s ago.",
        entries=((K.BEGUN, ""), (K.VISIBILITY, "its visibility ran out; 2 tries left then")),
    ),
    "silent worker, paused queue": Story(
        facts=JobFacts(job=running(visible_until=NOW - 5_000), now=NOW, queue=queue(paused=True)),
        reason=R.PAUSED,
        says="It waits to be begun again because queue builds is paused; worker w1 let",
    ),
    "silent worker on the last try": Story(
        facts=JobFacts(job=running(visible_until=NOW - 5_000, attempt=3), now=NOW, events=[start(3, 1)]),
        reason=R.WORKER_LOST,
        says="It is about to end as LOST: worker w1 let its visibility run out 5.0 s ago, and no try is",
    ),
    "silent worker of a cancelled job": Story(
        facts=JobFacts(job=running(visible_until=NOW - 5_000, cancel_requested=True), now=NOW),
        reason=R.CANCELLING,
        says="It is about to be CANCELLED: worker w1 let",
    ),
    "done": Story(
        facts=JobFacts(job=ended(Outcome.SUCCESS), now=NOW, events=[start(1, 1), end(1, 4)]),
        reason=R.COMPLETED,
        says="It did its work in attempt 1 after 3.0 s.",
        entries=(
            (K.BEGUN, ""),
            (K.ENDED, "attempt 1 ended after 3.0 s: exit code 0"),
            (K.FINISHED, "the job is COMPLETED"),
        ),
    ),
    "a copy that is done": Story(
        facts=JobFacts(job=replace(ended(Outcome.SUCCESS), retried_from="the-first"), now=NOW),
        reason=R.COMPLETED,
        says="It did its work",
        entries=((K.FINISHED, "the job is COMPLETED"),),
    ),
    "exit code": Story(
        facts=JobFacts(
            job=ended(Outcome.FAILURE, exit_code=3, error="exited with code 3"),
            now=NOW,
            events=[start(1, 1), end(1, 4, 3)],
        ),
        reason=R.FAILED,
        says="It failed because its process ended with exit code 3.",
        entries=(
            (K.BEGUN, ""),
            (K.ENDED, "attempt 1 ended after 3.0 s: exit code 3"),
            (K.FINISHED, "the job is FAILED: exited with code 3"),
        ),
    ),
    "signal": Story(
        facts=JobFacts(
            job=ended(Outcome.FAILURE, exit_code=137, error="killed by SIGKILL"),
            now=NOW,
            events=[start(1, 1), end(1, 4, 137)],
        ),
        reason=R.FAILED,
        says="It failed because its process was killed by SIGKILL.",
        entries=((K.BEGUN, ""), (K.ENDED, "killed by SIGKILL (exit code 137)"), (K.FINISHED, "")),
    ),
    "exit code beyond 128": Story(
        facts=JobFacts(
            job=ended(Outcome.FAILURE, exit_code=255, error="exited with code 255"),
            now=NOW,
            events=[start(1, 1), end(1, 4, 255)],
        ),
        reason=R.FAILED,
        says="It failed because its process ended with exit code 255.",
        entries=(
            (K.BEGUN, ""),
            (K.ENDED, "attempt 1 ended after 3.0 s: exit code 255"),
            (K.FINISHED, "the job is FAILED: exited with code 255"),
        ),
    ),
    "exit code like that of a signal": Story(
        facts=JobFacts(job=ended(Outcome.FAILURE, exit_code=137, error="exited with code 137"), now=NOW),
        reason=R.FAILED,
        says="It failed because its process ended with exit code 137.",
        entries=((K.FINISHED, "exited with code 137"),),
    ),
    "no such command": Story(
        facts=JobFacts(
            job=ended(Outcome.FAILURE, exit_code=127, error="no such command: mak"),
            now=NOW,
            events=[error(1, 1, "no such command: mak"), end(1, 1, 127)],
        ),
        reason=R.FAILED,
        says="It failed because of this error: no such command: mak.",
        entries=(
            (K.ENDED, "attempt 1 could not begin: no such command: mak (exit code 127)"),
            (K.FINISHED, ""),
        ),
    ),
    "handler error": Story(
        facts=JobFacts(
            job=replace(
                ended(Outcome.FAILURE, exit_code=1, error="ValueError: no such user", attempt=2),
                params=JobParams(handler="greet"),
            ),
            now=NOW,
            events=[start(1, 1), error(1, 2, "boom"), end(1, 2, 1), start(2, 9), end(2, 12, 1)],
        ),
        reason=R.FAILED,
        says="It failed because of this error: ValueError: no such user.",
        entries=(
            (K.BEGUN, ""),
            (K.ENDED, "boom (exit code 1); the job was given back"),
            (K.BEGUN, "attempt 2"),
            (K.ENDED, "attempt 2 ended after 3.0 s: exit code 1"),
            (K.FINISHED, "the job is FAILED: ValueError"),
        ),
    ),
    "timeout": Story(
        facts=JobFacts(
            job=ended(Outcome.TIMEOUT, exit_code=143, error="timed out after 90 s"),
            now=NOW,
            events=[start(1, 1), error(1, 91, "timed out after 90 s"), end(1, 91, 143)],
        ),
        reason=R.TIMEOUT,
        says="It failed because it ran longer than its timeout of 1 min 30 s.",
        entries=((K.BEGUN, ""), (K.ENDED, "timed out after 90 s (exit code 143)"), (K.FINISHED, "TIMEOUT")),
    ),
    "interrupted": Story(
        facts=JobFacts(
            job=ended(Outcome.INTERRUPTED, error="interrupted on its last try", attempt=3), now=NOW
        ),
        reason=R.INTERRUPTED,
        says="It failed because its worker shut down on its last try.",
    ),
    "cancelled in the queue": Story(
        facts=JobFacts(job=ended(Outcome.CANCELLED, error="cancelled", attempt=0, worker_id=""), now=NOW),
        reason=R.CANCELLED,
        says="It was cancelled before it began.",
        entries=((K.FINISHED, "the job is CANCELLED: cancelled"),),
    ),
    "cancelled by somebody": Story(
        facts=JobFacts(
            job=ended(Outcome.CANCELLED, error="cancelled", attempt=0, cancelled_by="ann", cancelled_at=NOON),
            now=NOW,
        ),
        reason=R.CANCELLED,
        says=f"It was cancelled before it began, by ann at {NOON_TEXT}.",
        entries=((K.CANCELLING, "ann cancelled it"), (K.FINISHED, "the job is CANCELLED: cancelled")),
    ),
    "cancelled by somebody while it ran": Story(
        facts=JobFacts(
            job=ended(Outcome.CANCELLED, error="cancelled", cancelled_by="ann", cancelled_at=NOON + 2_000),
            now=NOW,
            events=[start(1, 1), error(1, 3, "cancelled"), end(1, 3, 143)],
        ),
        reason=R.CANCELLED,
        says=f"It was cancelled during attempt 1, by ann at {to_iso(NOON + 2_000)}.",
        entries=(
            (K.BEGUN, ""),
            (K.CANCELLING, "ann cancelled it"),
            (K.ENDED, "cancelled (exit code 143)"),
            (K.FINISHED, ""),
        ),
    ),
    "cancelled while it ran": Story(
        facts=JobFacts(
            job=ended(Outcome.CANCELLED, error="cancelled", exit_code=143),
            now=NOW,
            events=[start(1, 1), error(1, 3, "cancelled"), end(1, 3, 143)],
        ),
        reason=R.CANCELLED,
        says="It was cancelled during attempt 1.",
        entries=((K.BEGUN, ""), (K.ENDED, "cancelled (exit code 143)"), (K.FINISHED, "")),
    ),
    "lost on the last try": Story(
        facts=JobFacts(
            job=ended(Outcome.LOST, error="the worker was lost on the last try", attempt=3),
            now=NOW,
            events=[start(1, 1), start(3, 9, "w3")],
        ),
        reason=R.LOST,
        says="It failed because its worker was lost on the last of 3 tries.",
        entries=(
            (K.BEGUN, "attempt 1 began on worker w1"),
            (K.LOST, "attempt 1 was lost: worker w1"),
            (K.LOST, "attempt 2 was lost: its worker never told its end"),
            (K.BEGUN, "attempt 3 began on worker w3"),
            (K.LOST, "attempt 3 was lost: worker w3"),
            (K.FINISHED, "the job is FAILED, LOST: the worker was lost on the last try"),
        ),
    ),
    "with a gap": Story(
        facts=JobFacts(
            job=ended(Outcome.SUCCESS),
            now=NOW,
            events=[
                start(1, 1),
                event(1, 2, Gap(first_sequence=5, last_sequence=9, reason="disk died")),
                end(1, 4),
            ],
        ),
        reason=R.COMPLETED,
        says="It did its work",
        entries=(
            (K.BEGUN, ""),
            (K.GAP, "events 5 to 9 were lost: disk died"),
            (K.ENDED, ""),
            (K.FINISHED, ""),
        ),
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_each_story_has_its_answer(story: Story) -> None:
    told = explain(story.facts)
    assert told.reason is story.reason
    assert told.text.startswith(story.says), told.text
    assert told.text.endswith(".")


@pytest.mark.parametrize(
    "story", [s for s in STORIES.values() if s.entries], ids=[n for n, s in STORIES.items() if s.entries]
)
def test_each_story_is_told_in_order(story: Story) -> None:
    first, *rest = build_timeline(story.facts)
    assert first.kind is EntryKind.ENQUEUED
    assert [entry.kind for entry in rest] == [kind for kind, _ in story.entries]
    for entry, (_, text) in zip(rest, story.entries, strict=True):
        assert text in entry.text


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES.keys())
def test_known_times_never_run_backwards(story: Story) -> None:
    noted = [entry.at for entry in build_timeline(story.facts) if entry.at]
    assert noted == sorted(noted)


def test_the_first_entry_says_who_wanted_it() -> None:
    first = build_timeline(JobFacts(job=job(retried_from="the-first"), now=NOW))[0]
    assert (first.at, first.text) == (NOON, "enqueued in queue builds by ann, as a copy of the-first")


def test_a_loss_is_dated_by_the_next_attempt() -> None:
    entries = build_timeline(STORIES["running again after a worker was lost"].facts)
    assert [entry.at for entry in entries if entry.kind is EntryKind.LOST] == [NOON + 300_000]


def test_the_document_has_everything() -> None:
    facts = STORIES["exit code"].facts
    printed = why_to_json(facts.job, build_timeline(facts), explain(facts))
    assert (printed["state"], printed["reason"]) == ("FAILED", "failed")
    assert printed["entries"] == [
        {"at": "2023-11-14T22:13:20.000Z", "kind": "enqueued", "attempt": 0}
        | {"text": "enqueued in queue builds by ann"},
        {"at": "2023-11-14T22:13:21.000Z", "kind": "begun", "attempt": 1}
        | {"text": "attempt 1 began on worker w1, pid 4711"},
        {"at": "2023-11-14T22:13:24.000Z", "kind": "ended", "attempt": 1}
        | {"text": "attempt 1 ended after 3.0 s: exit code 3"},
        {"at": "2023-11-14T22:23:19.000Z", "kind": "finished", "attempt": 0}
        | {"text": "the job is FAILED: exited with code 3"},
    ]
