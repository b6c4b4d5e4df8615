"""Whatever is written to the wire is read from it again, in both directions of every message."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from airunner.codec import (
    answers,
    completions,
    dead_letters,
    events,
    execution,
    fleet,
    jobs,
    lookups,
    publishing,
    requests,
    streams,
)
from airunner.codec import settings as run_time
from airunner.codec.building import EncodedMessage
from airunner.codec.errors import from_entry, from_wire, to_entry, to_wire
from airunner.codec.events import decode_event, encode_event
from airunner.codec.gen.job.v1 import job_pb2 as pb
from airunner.domain.answers import DequeuedJob
from airunner.domain.errors import (
    AirunnerError,
    InvalidArgument,
    Overloaded,
    SequenceMismatch,
    retry_after_seconds,
)
from airunner.domain.event import EncodedEvent, Event, Position
from airunner.domain.execution import ExecutionConfig
from airunner.domain.fleet import TaskType
from airunner.domain.job import Job
from airunner.domain.listing import JobQuery
from airunner.domain.requests import CompleteRequest, EnqueueRequest, ReleaseRequest, StreamRequest
from airunner.testing.factories import NOON
from tests.support import wire_values as wire

V = TypeVar("V")
M = TypeVar("M", bound=Message)


def sent(message: M) -> M:
    """Return the message as its receiver gets it."""
    return type(message).FromString(message.SerializeToString())


def parsed(kind: type[M], message: EncodedMessage) -> M:
    """Return the message of its bytes, as its receiver gets it."""
    assert message.ByteSize() == len(message.SerializeToString())
    return kind.FromString(message.SerializeToString())


@dataclass(frozen=True)
class Pair(Generic[V]):
    """Values, and how they go over the wire and come back."""

    values: st.SearchStrategy[V]
    trip: Callable[[V], V]


def pair(values: st.SearchStrategy[V], write: Callable[[V], M], read: Callable[[M], V]) -> Pair[V]:
    return Pair(values, lambda value: read(sent(write(value))))


def arguments(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(strategies)


def decoded(stored: list[EncodedEvent]) -> tuple[Event, ...]:
    return tuple(map(decode_event, stored))


def release_trip(value: ReleaseRequest) -> ReleaseRequest:
    read, stored = publishing.release_from_pb(sent(publishing.release_to_pb(value)), NOON)
    return replace(read, events=decoded(stored))


def publish(value: tuple[str, tuple[Event, ...]]) -> tuple[str, tuple[Event, ...]]:
    token, stored = publishing.publish_from_pb(sent(publishing.publish_to_pb(*value)), NOON)
    return token, decoded(stored)


def batch(event: Event) -> Event:
    """Send an event as it is stored, to a reader that unpacks and to one that does not."""
    stored = encode_event(event).of_attempt(event.attempt)
    for packed in (False, True):
        read = streams.batch_from_pb(sent(streams.batch_to_pb(stored, packed=packed)), stored.first_timestamp)
        assert read is not None
        assert read.position == stored.position
        assert read.first_sequence == stored.first_sequence
        assert decode_event(read) == event
    return event


@st.composite
def events_of_attempts(draw: st.DrawFn) -> Event:
    sequence = draw(st.integers(1, 10**9))
    return Event(
        sequence=sequence,
        timestamp=NOON,
        data=draw(wire.event_data(sequence, NOON)),
        attempt=draw(wire.positive),
    )


PAIRS: dict[str, Pair[Any]] = {
    "jobs.params": pair(wire.job_params, jobs.params_to_pb, jobs.params_from_pb),
    "jobs.result": pair(wire.results, jobs.result_to_pb, jobs.result_from_pb),
    "jobs.job": pair(wire.jobs, jobs.job_to_pb, jobs.job_from_pb),
    "execution.execution": pair(
        wire.executions,
        execution.execution_to_pb,
        lambda message: execution.execution_from_pb(message, ExecutionConfig()),
    ),
    "execution.override": pair(wire.overrides, execution.execution_to_pb, execution.override_from_pb),
    "events.event": pair(events_of_attempts(), events.event_to_pb, events.event_from_pb),
    "events.packed_event": pair(events_of_attempts(), events.event_to_packed_pb, events.event_from_pb),
    "requests.enqueue": pair(
        wire.enqueues,
        lambda request: parsed(pb.EnqueueJobRequest, requests.enqueue_to_pb(request)),
        requests.enqueue_from_pb,
    ),
    "requests.enqueue_batch": pair(
        st.lists(wire.enqueues, max_size=3),
        lambda batch: parsed(
            pb.EnqueueJobsRequest, requests.enqueue_batch_to_pb(list(map(requests.enqueue_to_pb, batch)))
        ),
        lambda message: list(map(requests.enqueue_from_pb, message.jobs)),
    ),
    "requests.dequeue": pair(wire.dequeues, requests.dequeue_to_pb, requests.dequeue_from_pb),
    "requests.abilities": pair(wire.abilities, requests.abilities_to_pb, requests.abilities_from_pb),
    "requests.update": pair(wire.updates, requests.update_to_pb, requests.update_from_pb),
    "requests.release": Pair(wire.releases, release_trip),
    "requests.publish": Pair(st.tuples(wire.texts, wire.event_lists()), publish),
    "requests.get": pair(
        arguments(
            job_id=wire.texts,
            wait_seconds=wire.signed,
            want_payload_urls=st.booleans(),
            abridge=st.booleans(),
        ),
        lambda value: lookups.get_to_pb(**value),
        lookups.get_from_pb,
    ),
    "requests.query": pair(wire.queries, lookups.query_to_pb, lookups.query_from_pb),
    "requests.queues_query": pair(
        wire.overview_queries, requests.queues_query_to_pb, requests.overview_query_from_pb
    ),
    "requests.workers_query": pair(
        wire.overview_queries, requests.workers_query_to_pb, requests.overview_query_from_pb
    ),
    "requests.cancel": pair(wire.texts, lookups.cancel_to_pb, lookups.cancel_from_pb),
    "requests.retry": pair(
        arguments(job_id=wire.texts, request_id=wire.texts),
        lambda value: lookups.retry_to_pb(**value),
        lookups.retry_from_pb,
    ),
    "requests.pause": pair(wire.texts, requests.pause_to_pb, requests.queue_from_pb),
    "requests.resume": pair(wire.texts, requests.resume_to_pb, requests.queue_from_pb),
    "streams.stream": pair(wire.streams, streams.stream_to_pb, streams.stream_from_pb),
    "streams.streamed": pair(
        events_of_attempts(), streams.streamed_to_pb, lambda message: events.event_from_pb(message.event)
    ),
    "streams.start": pair(
        st.builds(Position, st.integers(1, 2**31 - 1), st.integers(0, 10**12)),
        streams.start_to_pb,
        streams.start_from_pb,
    ),
    "streams.batch": Pair(events_of_attempts(), batch),
    "answers.enqueued": pair(wire.enqueued, answers.enqueued_to_pb, answers.enqueued_from_pb),
    "answers.dequeued": pair(
        st.lists(wire.dequeued, max_size=3), answers.dequeued_to_pb, answers.dequeued_from_pb
    ),
    "answers.dequeued_job": pair(
        wire.dequeued,
        answers.dequeued_job_to_pb,
        lambda message: DequeuedJob(
            jobs.job_from_pb(message.job), message.task_token, message.termination_token
        ),
    ),
    "answers.held": pair(wire.held, answers.held_to_pb, answers.held_from_pb),
    "answers.completed": pair(wire.states, answers.completed_to_pb, answers.state_from_pb),
    "answers.released": pair(wire.states, answers.released_to_pb, answers.state_from_pb),
    "answers.found": pair(wire.jobs, lookups.found_to_pb, lookups.one_job_from_pb),
    "answers.cancelled": pair(wire.jobs, lookups.cancelled_to_pb, lookups.one_job_from_pb),
    "answers.retried": pair(wire.jobs, lookups.retried_to_pb, lookups.one_job_from_pb),
    "answers.page": pair(wire.pages, lookups.page_to_pb, lookups.page_from_pb),
    "answers.queues": pair(wire.queue_pages, answers.queues_to_pb, answers.queues_from_pb),
    "answers.workers": pair(wire.worker_pages, answers.workers_to_pb, answers.workers_from_pb),
    "answers.published": pair(wire.published, answers.published_to_pb, answers.published_from_pb),
    "answers.stream_published": pair(
        wire.published, answers.stream_published_to_pb, answers.published_from_pb
    ),
    "dead_letters.list": pair(
        arguments(queue=wire.texts, max_messages=wire.signed, code=wire.texts),
        lambda value: dead_letters.list_to_pb(**value),
        dead_letters.list_from_pb,
    ),
    "dead_letters.redrive": pair(wire.redrives, dead_letters.redrive_to_pb, dead_letters.redrive_from_pb),
    "dead_letters.purge": pair(
        arguments(queue=wire.texts, max_messages=wire.signed, dry_run=st.booleans(), code=wire.texts),
        lambda value: dead_letters.purge_to_pb(**value),
        dead_letters.purge_from_pb,
    ),
    "dead_letters.page": pair(wire.dead_letter_pages, dead_letters.page_to_pb, dead_letters.page_from_pb),
    "dead_letters.redriven": pair(wire.redriven, dead_letters.redriven_to_pb, dead_letters.redriven_from_pb),
    "dead_letters.purged": pair(
        st.lists(wire.dead_letters, max_size=3), dead_letters.purged_to_pb, dead_letters.purged_from_pb
    ),
    "settings.set": pair(
        arguments(name=wire.texts, value=wire.texts),
        lambda value: run_time.set_to_pb(**value),
        run_time.set_from_pb,
    ),
    "settings.unset": pair(wire.texts, run_time.unset_to_pb, run_time.unset_from_pb),
    "settings.settings": pair(
        st.lists(wire.settings, max_size=2), run_time.settings_to_pb, run_time.settings_from_pb
    ),
    "settings.set_answer": pair(wire.settings, run_time.set_answer_to_pb, run_time.changed_from_pb),
    "settings.unset_answer": pair(wire.settings, run_time.unset_answer_to_pb, run_time.changed_from_pb),
    "fleet.list": pair(wire.signed, fleet.list_to_pb, fleet.list_from_pb),
    "fleet.report_request": pair(wire.signed, fleet.report_request_to_pb, fleet.report_request_from_pb),
    "fleet.run": pair(
        arguments(task=st.sampled_from(TaskType), dry_run=st.booleans(), limit=wire.signed),
        lambda value: fleet.run_to_pb(**value),
        fleet.run_from_pb,
    ),
    "fleet.run_answer": pair(wire.texts, fleet.run_answer_to_pb, fleet.run_answer_from_pb),
    "fleet.runs": pair(st.lists(wire.housekeeping_runs, max_size=2), fleet.runs_to_pb, fleet.runs_from_pb),
    "fleet.report": pair(wire.pool_reports, fleet.report_to_pb, fleet.report_from_pb),
}
# Messages without any field.
EMPTY = {
    "answers.paused_to_pb",
    "answers.resumed_to_pb",
    "run_time.list_to_pb",
}


@pytest.mark.parametrize("name", PAIRS)
@settings(max_examples=settings().max_examples // 2)
@given(data=st.data())
def test_what_is_written_is_read_again(name: str, data: st.DataObject) -> None:
    value = data.draw(PAIRS[name].values)
    assert PAIRS[name].trip(value) == value


def test_no_mapping_is_left_out() -> None:
    modules = (jobs, execution, events, requests, completions, streams, answers, dead_letters, run_time)
    source = Path(__file__).read_text(encoding="utf-8")
    assert [
        name
        for module in modules
        for name in mappings(module)
        if not re.search(rf"\b{name}\b", source) and name not in EMPTY
    ] == []


def mappings(module: ModuleType) -> list[str]:
    return [
        f"{'run_time' if module is run_time else module.__name__.rpartition('.')[2]}.{name}"
        for name, value in vars(module).items()
        if name.endswith("_pb") and not name.startswith("_")
        if inspect.unwrap(value).__module__ == module.__name__
    ]


@given(st.lists(wire.completions, max_size=3), st.data())
def test_completions_of_one_call_share_what_they_have_in_common(
    distinct: list[CompleteRequest], data: st.DataObject
) -> None:
    alike = st.builds(replace, st.sampled_from(distinct), task_token=wire.texts, job_id=wire.texts)
    # Some with an output of their own.
    shared = alike | st.builds(
        lambda request, text: replace(request, result=request.result.with_output(text, b"")),
        alike,
        wire.texts,
    )
    requests = data.draw(st.permutations([*distinct, *(data.draw(shared) for _ in distinct)]))
    writer, reader = completions.CompletionWriter(), completions.CompletionReader(NOON)
    encoded = completions.complete_batch_to_pb([writer.write(request) for request in requests])
    message = parsed(pb.CompleteJobsRequest, encoded)
    read = [reader.read(entry) for entry in message.completions]
    assert [replace(request, events=decoded(stored)) for request, stored in read] == requests
    assert all(jobs.decode_result(request.result_bytes) == request.result for request, _ in read)


@given(st.lists(wire.jobs, max_size=3), st.data())
def test_jobs_of_one_answer_share_what_they_have_in_common(distinct: list[Job], data: st.DataObject) -> None:
    shared = st.builds(
        replace,
        st.sampled_from(distinct),
        job_id=wire.texts,
        request_id=wire.texts,
        params=st.sampled_from([job.params for job in distinct]),
    )
    together = data.draw(st.permutations([*distinct, *(data.draw(shared) for _ in distinct)]))
    dequeued = [DequeuedJob(job, f"token {number}") for number, job in enumerate(together)]
    assert answers.dequeued_from_pb(sent(answers.dequeued_to_pb(dequeued))) == dequeued


@given(wire.enqueues)
def test_an_enqueue_is_read_with_its_encodings(request: EnqueueRequest) -> None:
    read = requests.enqueue_from_pb(parsed(pb.EnqueueJobRequest, requests.enqueue_to_pb(request)))
    assert read.params_bytes == jobs.encode_params(request.params)
    assert read.execution_bytes == (
        execution.encode_execution(request.execution) if request.execution else b""
    )


@given(st.lists(wire.enqueued | wire.refusals), st.lists(wire.states | wire.refusals))
def test_outcomes_of_a_batch_are_read_again(enqueued: list[Any], completed: list[Any]) -> None:
    assert list(
        map(told, answers.enqueue_outcomes_from_pb(sent(answers.enqueue_outcomes_to_pb(enqueued))))
    ) == list(map(told, enqueued))
    assert list(
        map(told, answers.complete_outcomes_from_pb(sent(answers.complete_outcomes_to_pb(completed))))
    ) == list(map(told, completed))


@given(wire.refusals)
def test_errors_are_read_again(error: AirunnerError) -> None:
    assert told(from_entry(sent(to_entry(error)))) == told(error)
    assert told(from_wire(to_wire(error))) == told(error)


@pytest.mark.parametrize(("seconds", "waited"), [(10**9, 300), (-5, 0)])
def test_a_server_makes_nobody_wait_for_ever(seconds: int, waited: int) -> None:
    error = Overloaded("no", retry_after_seconds=seconds)
    assert retry_after_seconds(from_wire(to_wire(error))) == waited
    assert retry_after_seconds(from_entry(sent(to_entry(error)))) == waited


def told(outcome: object) -> object:
    """Return what a caller learns: an outcome, or the class and the text of an error."""
    if not isinstance(outcome, AirunnerError):
        return outcome
    expected = outcome.expected if isinstance(outcome, SequenceMismatch) else None
    return type(outcome), outcome.text, expected, retry_after_seconds(outcome)


def test_a_sign_of_life_is_no_event() -> None:
    assert streams.batch_from_pb(sent(streams.batch_to_pb(None, packed=True)), NOON) is None
    assert streams.batch_from_pb(sent(streams.start_to_pb(Position(1, 1))), NOON) is None


@given(events_of_attempts())
def test_neither_an_event_nor_a_sign_of_life_tells_where_a_stream_begins(event: Event) -> None:
    stored = encode_event(event).of_attempt(event.attempt)
    for message in (stored, None):
        assert streams.start_from_pb(sent(streams.batch_to_pb(message, packed=True))) is None


def test_our_reader_of_streams_unpacks() -> None:
    message = streams.stream_to_pb(StreamRequest(job_id="a"))
    assert streams.accepts_packed(sent(message))
    message.ClearField("accept_encodings")
    assert not streams.accepts_packed(sent(message))


@given(wire.texts.filter(bool), wire.positive)
def test_a_page_and_a_cursor_exclude_each_other(cursor: str, page: int) -> None:
    message = lookups.query_to_pb(JobQuery(cursor=cursor))
    message.page = page
    with pytest.raises(InvalidArgument, match="exclude"):
        lookups.query_from_pb(message)
