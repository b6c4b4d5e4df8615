"""Strategies for whatever goes over the wire: any value that it can carry, and none that it cannot."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

from hypothesis import strategies as st

from airunner.domain import answers, errors, limits, listing, requests
from airunner.domain.event import (
    Event,
    EventData,
    EventType,
    Gap,
    Output,
    OutputBatch,
    Position,
    ProcessEnd,
    ProcessError,
    ProcessStart,
    Progress,
    StreamType,
)
from airunner.domain.execution import BatchingConfig, ExecutionConfig
from airunner.domain.fleet import (
    ActionKind,
    HousekeepingRun,
    Pool,
    PoolAudit,
    PoolReport,
    RecordedAction,
    RunOutcome,
    TaskType,
)
from airunner.domain.job import JOB_STATES, Job, JobParams, JobResult, Outcome, ProcessType
from airunner.domain.lifecycle import Lifecycle
from airunner.domain.requests import BatchingOverride, ExecutionOverride
from airunner.testing.factories import NOON

T = TypeVar("T")

texts = st.text(max_size=12)
names = st.lists(texts, max_size=3).map(tuple)
numbers = st.integers(0, 2**31 - 1)
signed = st.integers(-(2**31), 2**31 - 1)
positive = st.integers(1, 2**31 - 1)
large = st.integers(0, 2**63 - 1)
sequences = st.integers(0, limits.MAX_SEQUENCE)
instants = st.integers(0, limits.MAX_INSTANT)
digests = st.just(b"") | st.binary(min_size=32, max_size=32)
states = st.sampled_from(JOB_STATES)


def values(kind: type[T], /, **strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Return values of a class. Every field has to be named: one that is new is not forgotten here."""
    expected = {field.name for field in fields(kind) if field.init}  # type: ignore[arg-type]  # a dataclass
    assert strategies.keys() == expected, (kind, strategies.keys() ^ expected)
    return st.builds(kind, **strategies)


job_params = values(
    JobParams,
    repository_url=texts,
    commit=texts,
    branch=texts,
    command=texts,
    args=names,
    environment=st.dictionaries(texts, texts, max_size=3),
    secret_names=names,
    metadata=st.dictionaries(texts, texts, max_size=3),
    owner=texts,
    working_directory=texts,
    timeout_seconds=signed,
    process_type=st.sampled_from(ProcessType),
    handler=texts,
    payload_json=texts,
)
executions = values(
    ExecutionConfig,
    batching=values(
        BatchingConfig,
        flush_interval_seconds=positive,
        max_batch_size=positive,
        max_batch_bytes=positive,
        playback_interval_millis=positive,
        adaptive=st.booleans(),
    ),
    heartbeat_interval_seconds=positive,
    assumed=st.just(False),  # never sent
)
overrides = values(
    ExecutionOverride,
    batching=values(
        BatchingOverride,
        flush_interval_seconds=signed,
        max_batch_size=signed,
        max_batch_bytes=signed,
        playback_interval_millis=signed,
        adaptive=st.none() | st.booleans(),
    ),
    heartbeat_interval_seconds=signed,
)


def _results(success: bool) -> st.SearchStrategy[JobResult]:
    return values(
        JobResult,
        success=st.just(success),
        outcome=st.just(Outcome.SUCCESS) if success else st.sampled_from(list(Outcome)[1:]),
        exit_code=st.just(0) if success else signed,
        error_message=texts,
        started_at=instants,
        completed_at=instants,
        output_json=texts,
        final_sequence=sequences,
        output_sha256=digests,
    )


results = st.booleans().flatmap(_results)


def _as_the_wire_tells(life: Lifecycle) -> Lifecycle:
    """Return a life whose end is when it was last changed, which is all that the wire says about it."""
    return replace(life, finished_at=life.updated_at if life.state.terminal else 0)


lives = values(
    Lifecycle,
    max_attempts=numbers,
    due_at=instants,
    updated_at=instants,
    state=states,
    attempt=numbers,
    handed_back=numbers,
    visible_until=instants,
    visibility_seconds=numbers,
    silent_attempts=numbers,
    cancelled_by=texts,
    cancelled_at=instants,
    cancel_requested=st.booleans(),
    worker_id=texts,
    instance_id=texts,
    last_sequence=sequences,
    last_error=texts,
    result=st.none() | results,
    completed_by=st.just(0),  # the server's own
    finished_at=st.just(0),
    watched_until=st.just(0),  # the server's own, as are the two below
    watchers_at=st.just(()),
    holder_at=st.just(""),
).map(_as_the_wire_tells)
jobs = values(
    Job,
    job_id=texts,
    queue=texts,
    params=job_params,
    execution=executions,
    created_at=instants,
    request_id=texts,
    principal=st.just(""),  # nobody's business
    life=lives,
    retried_from=texts,
    receipt=st.just(""),  # in the token
    params_url=texts,
    result_url=texts,
    abridged=st.booleans(),
)

outputs = st.builds(Output, st.binary(max_size=200), st.sampled_from(StreamType))


def event_data(sequence: int, timestamp: int) -> st.SearchStrategy[EventData]:
    """Return what an event with this sequence and timestamp may hold."""
    return st.one_of(
        outputs,
        _batches(sequence, timestamp),
        values(ProcessStart, pid=signed, started_at=instants, worker_id=texts),
        values(
            ProcessEnd,
            pid=signed,
            exit_code=signed,
            run_duration_ms=numbers,
            event_count=large,
            output_sha256=digests,
        ),
        values(ProcessError, error_message=texts),
        values(
            Gap,
            first_sequence=st.just(sequence),
            last_sequence=st.integers(sequence, sequence + 1000),
            reason=texts,
        ),
        values(Progress, done=large, total=large, message=texts),
    )


@st.composite
def _batches(draw: st.DrawFn, sequence: int, timestamp: int) -> OutputBatch:
    batch = tuple(draw(st.lists(outputs, min_size=1, max_size=6)))
    count = len(batch)
    gaps = draw(st.just([]) | st.lists(st.integers(0, 5000), min_size=count, max_size=count))
    return OutputBatch(
        outputs=batch,
        start_sequence=sequence,
        end_sequence=sequence + count - 1,
        timestamps=tuple(timestamp + sum(gaps[: index + 1]) for index in range(len(gaps))),
        playback_interval_millis=draw(st.integers(0, 60_000)),
    )


@st.composite
def event_lists(draw: st.DrawFn) -> tuple[Event, ...]:
    """Return events as a worker sends them: in order, without an attempt or a cursor."""
    events: list[Event] = []
    sequence, timestamp = draw(st.integers(1, 10**9)), draw(st.integers(1, NOON))
    for _ in range(draw(st.integers(0, 4))):
        event = Event(sequence=sequence, timestamp=timestamp, data=draw(event_data(sequence, timestamp)))
        events.append(event)
        times = event.data.timestamps if isinstance(event.data, OutputBatch) else ()
        sequence = event.last_sequence + draw(st.integers(1, 3))
        timestamp = (timestamp, *times)[-1] + draw(numbers)
    return tuple(events)


cursors = st.just("") | st.builds(
    lambda attempt, sequence: Position(attempt, sequence).cursor, numbers, sequences
)
enqueues = values(
    requests.EnqueueRequest,
    request_id=texts,
    queue=texts,
    params=job_params,
    delay_seconds=signed,
    max_attempts=signed,
    execution=st.none() | overrides,
    params_bytes=st.just(b""),
    execution_bytes=st.just(b""),
)
abilities = values(requests.Abilities, handlers=names, commands=st.booleans())
dequeues = values(
    requests.DequeueRequest,
    queue=texts,
    more_queues=names,
    max_jobs=signed,
    visibility_timeout_seconds=signed,
    wait_seconds=st.none() | signed,
    worker_id=texts,
    instance_id=texts,
    first_lease_seconds=signed,
    abilities=st.none() | abilities,
)
updates = values(
    requests.UpdateRequest,
    queue=texts,
    task_token=texts,
    visibility_timeout_seconds=signed,
    wait_seconds=signed,
    watched=st.booleans(),
)
completions = values(
    requests.CompleteRequest,
    task_token=texts,
    result=results,
    events=event_lists(),
    job_id=texts,
    result_bytes=st.just(b""),
)
releases = values(
    requests.ReleaseRequest,
    task_token=texts,
    delay_seconds=signed,
    unstarted=st.booleans(),
    error=texts,
    events=event_lists(),
)
streams = values(
    requests.StreamRequest,
    job_id=texts,
    from_sequence=large,
    from_timestamp=large,
    event_filter=st.frozensets(st.sampled_from(EventType)),
    attempt=signed,
    cursor=cursors,
    follow=st.booleans(),
)


def _queries(by_cursor: bool) -> st.SearchStrategy[listing.JobQuery]:
    return values(
        listing.JobQuery,
        queue=texts,
        state=st.none() | states,
        page=st.just(1) if by_cursor else positive,
        page_size=positive,
        cursor=st.text(min_size=1, max_size=12) if by_cursor else st.just(""),
    )


queries = st.booleans().flatmap(_queries)
overview_queries = values(requests.OverviewQuery, page_size=signed, cursor=texts)
redrives = values(
    requests.Redrive, queue=texts, max_messages=signed, all=st.booleans(), dry_run=st.booleans(), code=texts
)

enqueued = values(answers.Enqueued, job_id=texts, created_at=instants, state=states)
dequeued = values(answers.DequeuedJob, job=jobs, task_token=texts, termination_token=texts)
held = values(answers.HeldJob, cancel_requested=st.booleans(), watched=st.booleans(), visible_until=instants)
published = values(
    answers.Published, next_sequence=large, cancel_requested=st.booleans(), watched=st.booleans()
)
pages = values(listing.JobPage, jobs=st.lists(jobs, max_size=2), last_page=numbers, next_cursor=texts)
queues = values(
    answers.QueueStats,
    name=texts,
    paused=st.booleans(),
    scheduled=large,
    running=large,
    oldest_scheduled_at=instants,
    paused_by=texts,
    paused_at=instants,
)
workers = values(
    answers.WorkerSeen,
    worker_id=texts,
    instance_id=texts,
    queues=names,
    last_seen_at=instants,
    job_ids=names,
    abilities=st.none() | abilities,
    more_handlers=numbers,
)
queue_pages = values(answers.QueuePage, queues=st.lists(queues, max_size=3), next_cursor=texts)
worker_pages = values(answers.WorkerPage, workers=st.lists(workers, max_size=3), next_cursor=texts)
dead_letters = values(
    answers.DeadLetter,
    message_id=texts,
    reason=st.sampled_from(answers.DeadLetterReason),
    job_id=texts,
    sent_at=instants,
    redrives=numbers,
    body=texts,
    body_cut=st.booleans(),
    code=texts,
)
dead_letter_pages = values(
    answers.DeadLetterPage, letters=st.lists(dead_letters, max_size=2), approximate_total=large
)
redriven = values(
    answers.Redriven, redriven=st.lists(dead_letters, max_size=2), left=st.lists(dead_letters, max_size=2)
)

settings = values(
    answers.Setting,
    name=texts,
    value=texts,
    configured=texts,
    is_set=st.booleans(),
    allowed=texts,
    unread_reason=texts,
    changes=st.lists(
        values(
            answers.SettingChange,
            value=st.none() | texts,
            old_value=st.none() | texts,
            changed_by=texts,
            changed_at=instants,
        ),
        max_size=2,
    ).map(tuple),
)

# The errors that have a code, or a detail, of their own; those below them come back as these.
_PLAIN_ERRORS: tuple[type[errors.AirunnerError], ...] = (
    errors.InvalidArgument,
    errors.InvalidTaskToken,
    errors.NotFound,
    errors.FailedPrecondition,
    errors.AlreadyExists,
    errors.ResourceExhausted,
    errors.Unavailable,
    errors.DeadlineExceeded,
    errors.Unauthenticated,
    errors.PermissionDenied,
    errors.InternalError,
)
refusals = (
    st.builds(lambda kind, text: kind(text), st.sampled_from(_PLAIN_ERRORS), texts)
    | st.builds(errors.SequenceMismatch, st.integers(1, limits.MAX_SEQUENCE), sequences)
    | st.builds(
        lambda text, millis: errors.Overloaded(text, retry_after_seconds=millis / 1000),
        texts,
        st.integers(0, 300_000),
    )
)

housekeeping_runs = values(
    HousekeepingRun,
    slot=texts,
    task_type=st.sampled_from(TaskType),
    started_at=instants,
    ended_at=instants,
    outcome=st.sampled_from(RunOutcome),
    dry_run=st.booleans(),
    text=texts,
    listed=large,
    changed=large,
    actions=st.lists(
        values(
            RecordedAction,
            kind=st.sampled_from(ActionKind),
            target=texts,
            why=texts,
            seen=texts,
            at=instants,
        ),
        max_size=2,
    ).map(tuple),
    actions_left_out=numbers,
)
_costs = st.none() | st.floats(min_value=0, max_value=1e9)
pool_reports = values(
    PoolReport,
    pools=st.lists(
        values(Pool, name=texts, instance_type=texts, desired_running=numbers, desired_stopped=numbers),
        max_size=2,
    ),
    audits=st.lists(
        st.lists(
            values(
                PoolAudit,
                pool=texts,
                audited_at=instants,
                running=numbers,
                stopped=numbers,
                idle=numbers,
                seconds=st.floats(min_value=0, max_value=1e9),
                compute_cost_usd=_costs,
                idle_cost_usd=_costs,
            ),
            max_size=2,
        ),
        max_size=2,
    ),
)
