"""What the sinks make of answers: whose failure it is, and whether another try can help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from airunner.aws.errors import Refused
from airunner.domain.answers import Enqueued
from airunner.domain.errors import (
    AirunnerError,
    AlreadyExists,
    InternalError,
    InvalidArgument,
    MessageTooLarge,
    NotFound,
    Overloaded,
    PermissionDenied,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
)
from airunner.domain.job import JobState
from airunner.domain.outcomes import prepare_entries
from airunner.domain.requests import EnqueueRequest
from airunner.outbox.jobs_sink import JobsSink, payload_of
from airunner.outbox.judging import REJECTED_ROW, marks_of
from airunner.outbox.rows import ClaimedRow, NotTried, Rejected, SendOutcome, Sent
from airunner.outbox.sqs_sink import SqsSink
from airunner.queues.message_rules import check_message
from airunner.queues.messages import NewMessage

AWAY = Unavailable("away")


def row(number: int, body: str = "", attempts: int = 0) -> ClaimedRow:
    text = body or f'{{"id": "{number}", "name": "n", "payload": {{}}}}'
    return ClaimedRow(row_id=f"id-{number}", queue="generation", name="n", body=text, attempts=attempts)


class ScriptedQueue:
    """Answers calls with what it was given for them, one after the other."""

    name = "scripted"

    def __init__(self, *calls: Sequence[str | AirunnerError]) -> None:
        self.calls = list(calls)
        self.sizes: list[int] = []

    async def send(self, messages: Sequence[NewMessage]) -> Sequence[str | AirunnerError]:
        self.sizes.append(len(messages))
        return self.calls.pop(0)


def sink_of(queue: ScriptedQueue) -> SqsSink:
    queues: dict[str, Any] = {"generation": queue}
    return SqsSink(queues)


async def send(sink: SqsSink, count: int) -> Sequence[SendOutcome]:
    return await sink.send("generation", [row(number) for number in range(count)])


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("m", Sent("sqs:m")),
        (Unavailable("busy"), Rejected("busy")),
        (ResourceExhausted("slow"), Rejected("slow")),
        (InvalidArgument("bad"), Rejected("bad", for_good=True)),
        (MessageTooLarge("big"), Rejected("big", for_good=True)),
        (Refused("KmsDisabled"), Rejected("SQS refuses it: KmsDisabled", for_good=True)),
    ],
)
async def test_an_entry_is_the_row_s_own_matter(answer: str | AirunnerError, outcome: SendOutcome) -> None:
    assert await send(sink_of(ScriptedQueue(["a", answer])), 2) == [Sent("sqs:a"), outcome]


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (AWAY, NotTried("away")),
        (Refused("AccessDenied"), NotTried("SQS refuses it: AccessDenied")),
        (Refused("QueueDoesNotExist"), NotTried("SQS refuses it: QueueDoesNotExist", queue_missing=True)),
    ],
)
@pytest.mark.parametrize("count", [1, 3])
async def test_a_call_that_fails_is_no_row_s_matter(
    error: AirunnerError, outcome: SendOutcome, count: int
) -> None:
    assert await send(sink_of(ScriptedQueue([error] * count)), count) == [outcome] * count


@pytest.mark.parametrize("error", [AWAY, Refused("AccessDenied"), InvalidArgument("bad")], ids=repr)
async def test_a_row_that_no_queue_takes_is_no_matter_of_those_beside_it(error: AirunnerError) -> None:
    class Refusing(ScriptedQueue):
        """Refuses what no queue takes, as every queue does, and fails the call with the others."""

        async def send(self, messages: Sequence[NewMessage]) -> Sequence[str | AirunnerError]:
            answers: list[str | AirunnerError] = []
            for entry in prepare_entries(messages, check_message):
                is_alone = len(messages) == 1 and isinstance(error, InvalidArgument)
                answers.append(entry if isinstance(entry, AirunnerError) else "m" if is_alone else error)
            return answers

    rows = [row(1), row(2, '{"id": "2", "name": "n", "payload": "\ufffe"}'), row(3)]
    first, bad, last = await sink_of(Refusing()).send("generation", rows)
    assert isinstance(bad, Rejected)
    assert bad.for_good
    assert first == last
    assert isinstance(first, Sent if isinstance(error, InvalidArgument) else NotTried)


async def test_a_row_by_itself_that_is_refused_for_what_it_holds_is_rejected() -> None:
    assert await send(sink_of(ScriptedQueue([InvalidArgument("bad")])), 1) == [Rejected("bad", for_good=True)]


async def test_rows_that_are_refused_together_go_one_by_one() -> None:
    bad = InvalidArgument("bad")
    queue = ScriptedQueue([bad] * 3, ["a"], [bad], ["c"])
    assert await send(sink_of(queue), 3) == [Sent("sqs:a"), Rejected("bad", for_good=True), Sent("sqs:c")]
    assert queue.sizes == [3, 1, 1, 1]


async def test_no_call_has_more_than_sqs_takes() -> None:
    large = "x" * (200 * 1024)
    queue = ScriptedQueue(["a"], ["b"])
    rows = [row(1, large), row(2, large)]
    assert await sink_of(queue).send("generation", rows) == [Sent("sqs:a"), Sent("sqs:b")]


class Jobs:
    """Answers with what it was given."""

    def __init__(self, *answers: str | AirunnerError, error: AirunnerError | None = None) -> None:
        self.answers = answers
        self.error = error
        self.requests: list[EnqueueRequest] = []

    async def enqueue_jobs(self, requests: Sequence[EnqueueRequest]) -> Sequence[Enqueued | AirunnerError]:
        self.requests += requests
        if self.error:
            raise self.error
        return [
            Enqueued(job_id=answer, created_at=0, state=JobState.SCHEDULED)
            if isinstance(answer, str)
            else answer
            for answer in self.answers
        ]


async def send_jobs(jobs: Any, *rows: ClaimedRow) -> Sequence[SendOutcome]:
    return await JobsSink(jobs).send("generation", rows or [row(1)])


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        ("job", Sent("job")),
        (InvalidArgument("bad"), Rejected("bad", for_good=True)),
        (AlreadyExists("used"), Rejected("used", for_good=True)),
        (PermissionDenied("bound"), Rejected("bound", for_good=True)),
        (NotFound("no queue"), Rejected("unknown_queue", for_good=True)),
        (MessageTooLarge("big"), Rejected("big", for_good=True)),
        (InternalError("oops"), Rejected("oops")),
        (ResourceExhausted("full"), NotTried("full")),
        (Overloaded("later", retry_after_seconds=1), NotTried("later")),
        (AWAY, NotTried("away")),
        (Unauthenticated("key"), NotTried("key")),
    ],
)
async def test_what_becomes_of_a_job(answer: str | AirunnerError, outcome: SendOutcome) -> None:
    assert await send_jobs(Jobs(answer)) == [outcome]


async def test_jobs_of_a_call_that_fails_were_not_tried() -> None:
    assert await send_jobs(Jobs(error=AWAY), row(1), row(2)) == [NotTried("away")] * 2


async def test_a_job_has_the_id_the_name_and_the_exact_payload_of_its_row() -> None:
    payload = '{"a": 1.10, "b": [1e400, "\\"payload\\": "]}'
    jobs = Jobs("job")
    await send_jobs(jobs, row(7, f'{{"id": "7", "name": "a \\"payload\\": b", "payload": {payload}}}'))
    (request,) = jobs.requests
    assert (request.request_id, request.queue, request.max_attempts) == ("id-7", "generation", 5)
    assert (request.params.handler, request.params.payload_json) == ("n", payload)
    assert payload_of('{"id": "7", "name": "n", "payload": null}') == "null"


def test_a_refused_row_rests_longer_each_time_and_is_parked_in_the_end() -> None:
    marks = [marks_of([row(1, attempts=n)], [Rejected("no")], by_itself=False)[0] for n in range(10)]
    assert [mark.state for mark in marks] == ["pending"] * 9 + ["parked"]
    assert all(mark.attempts == 1 for mark in marks)
    for number, mark in enumerate(marks[:-1], start=1):
        longest = REJECTED_ROW.delay(number, draw=0.0)
        assert longest / 2 <= mark.pause_seconds <= longest


def test_a_row_that_was_not_tried_costs_nothing_and_lets_others_go_first() -> None:
    for by_itself, pause in ((True, 0.0), (False, 1.0)):
        (mark,) = marks_of([row(1)], [NotTried("away")], by_itself=by_itself)
        assert (mark.state, mark.attempts, mark.pause_seconds) == ("pending", 0, pause)
