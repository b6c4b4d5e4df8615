"""Small valid values of everything a test has to send; each argument replaces one default."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from airunner.codec.jobs import encode_params
from airunner.domain.event import (
    Event,
    Output,
    OutputBatch,
    ProcessEnd,
    ProcessError,
    ProcessStart,
    StreamType,
)
from airunner.domain.execution import ExecutionConfig
from airunner.domain.job import JobParams, JobResult, Outcome, mint_uuid
from airunner.domain.requests import EnqueueRequest
from airunner.domain.token import TokenSigner
from airunner.services.composition import Replica, ServiceRules, Services
from airunner.stores.records import NewJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.clock import Clock
    from airunner.domain.requests import ExecutionOverride
    from airunner.stores.base import JobStore

TOKEN_KEY = b"a key only for tests"
# Upkeep runs when a test asks for it, never by itself.
NEVER_SECONDS = 10.0**9
NOON = 1_700_000_000_000


def make_services(
    store: JobStore, clock: Clock, rules: ServiceRules | None = None, replica: Replica | None = None
) -> Services:
    """Return services whose maintenance only runs by `maintenance.run_once()`."""
    rules = rules or ServiceRules(maintenance_interval_seconds=NEVER_SECONDS)
    return Services(store, clock, TokenSigner([TOKEN_KEY]), rules, replica)


def make_request(
    queue: str = "builds",
    *,
    command: str = "make",
    request_id: str = "",
    params: JobParams | None = None,
    delay_seconds: int = 0,
    max_attempts: int = 0,
    execution: ExecutionConfig | ExecutionOverride | None = None,
) -> EnqueueRequest:
    """Return a request to enqueue a job, with a new request id unless one is given."""
    return EnqueueRequest(
        request_id=request_id or str(uuid.uuid4()),
        queue=queue,
        params=params or JobParams(command=command),
        delay_seconds=delay_seconds,
        max_attempts=max_attempts,
        execution=execution,
    )


def make_success(*, final_sequence: int = 0, output_json: str = "") -> JobResult:
    """Return the result of a process that ended with 0."""
    return JobResult(
        success=True, outcome=Outcome.SUCCESS, final_sequence=final_sequence, output_json=output_json
    )


def make_failure(*, outcome: Outcome = Outcome.FAILURE, exit_code: int = 1, error: str = "") -> JobResult:
    """Return the result of a process that did not do its work."""
    return JobResult(success=False, outcome=outcome, exit_code=exit_code, error_message=error)


def make_start(sequence: int = 1, *, at: int = NOON) -> Event:
    """Return a PROCESS_START event."""
    return Event(sequence=sequence, timestamp=at, data=ProcessStart(pid=4711, started_at=at))


def make_end(sequence: int, *, at: int = NOON, exit_code: int = 0) -> Event:
    """Return a PROCESS_END event."""
    data = ProcessEnd(pid=4711, exit_code=exit_code, run_duration_ms=1500)
    return Event(sequence=sequence, timestamp=at, data=data)


def make_error(sequence: int, *, at: int = NOON, message: str = "test error") -> Event:
    """Return a PROCESS_ERROR event."""
    return Event(sequence=sequence, timestamp=at, data=ProcessError(error_message=message))


def make_new_job(
    params: JobParams | None = None, *, queue: str = "builds", now: int = NOON, delay_ms: int = 0
) -> NewJob:
    """Return a job as a store is given it."""
    params = params or JobParams(command="make")
    return NewJob(
        job_id=mint_uuid(now),
        queue=queue,
        principal="ann",
        request_id=mint_uuid(now),
        fingerprint=b"a",
        params=params,
        params_bytes=encode_params(params),
        execution=ExecutionConfig(),
        max_attempts=3,
        created_at=now,
        due_at=now + delay_ms,
    )


def make_line(sequence: int, *, at: int = NOON, stream: StreamType = StreamType.STDOUT) -> Event:
    """Return one line of output that names its sequence."""
    return Event(sequence=sequence, timestamp=at, data=Output(b"line %d\n" % sequence, stream))


def make_batch(first: int, last: int, *, at: int = NOON, timestamps: Sequence[int] | None = None) -> Event:
    """Return a batch of such lines; all at one instant unless their timestamps are given, or () for none."""
    sequences = range(first, last + 1)
    batch = OutputBatch(
        outputs=tuple(Output(b"line %d\n" % sequence) for sequence in sequences),
        start_sequence=first,
        end_sequence=last,
        timestamps=tuple([at] * len(sequences) if timestamps is None else timestamps),
        playback_interval_millis=50,
    )
    return Event(sequence=first, timestamp=at, data=batch)
