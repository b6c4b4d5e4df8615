"""The whole report of a handler job that was over in a moment, made without a publisher.

It is what a publisher would leave to be reported with the end of the attempt, event for event.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final, TypeAlias

from airunner.domain.batching import Batcher
from airunner.domain.event import Event, ProcessEnd, ProcessStart, StreamType
from airunner.domain.job import JobResult, Outcome
from airunner.worker.attempt import JobOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airunner.domain.batching import Flush
    from airunner.domain.job import JobParams
    from airunner.worker.attempt import Attempt
    from airunner.worker.handlers.output import OutputLines
    from airunner.worker.secrets.redaction import LineRedactor

    RedactorFor: TypeAlias = Callable[[JobParams], LineRedactor | None]
    """Returns what hides the secrets of a job; None if there are none."""

_SHA256_OF_NOTHING: Final = hashlib.sha256().digest()


def silent_outcomes(started_at: int, worker_id: str, now: int, results: Iterable[str]) -> list[JobOutcome]:
    """Return the outcomes of attempts that succeeded without output, and only differ in their results.

    `results` are JSON, in the order of the outcomes. All share their events, which are encoded once then.
    """
    now = max(now, started_at)  # the clock may have been set back meanwhile
    end = ProcessEnd(
        pid=os.getpid(),
        exit_code=0,
        run_duration_ms=now - started_at,
        event_count=1,
        output_sha256=_SHA256_OF_NOTHING,
    )
    events = (
        Event(sequence=1, timestamp=started_at, data=_start(started_at, worker_id)),
        Event(sequence=2, timestamp=now, data=end),
    )
    success = _success(started_at, now, "", 2, _SHA256_OF_NOTHING)
    plain = JobOutcome(result=success, events=events)
    return [
        JobOutcome(result=success.with_output(output_json, _SHA256_OF_NOTHING), events=events)
        if output_json
        else plain
        for output_json in results
    ]


def printed_outcome(
    attempt: Attempt,
    output_json: str,
    printed: Sequence[OutputLines],
    now: int,
    *,
    redactor: LineRedactor | None,
) -> tuple[JobOutcome, list[Flush]]:
    """Return the outcome of an attempt that succeeded, and printed this; and what is to be counted of it."""
    started_at = attempt.started_at
    now = max(now, started_at)
    batcher = Batcher(attempt.job.execution.batching)
    flushes = batcher.add(_start(started_at, attempt.job.life.worker_id), started_at)
    for lines, is_stderr in _redacted(printed, redactor):
        flushes += batcher.add_output(lines, StreamType.STDERR if is_stderr else StreamType.STDOUT, now)
    flushes += batcher.add(ProcessEnd(pid=os.getpid(), exit_code=0, run_duration_ms=now - started_at), now)
    result = _success(started_at, now, output_json, batcher.next_sequence - 1, batcher.output_sha256)
    events = [event for flush in flushes for event in flush.events]
    return JobOutcome(result=result, events=events), flushes


def _start(started_at: int, worker_id: str) -> ProcessStart:
    return ProcessStart(pid=os.getpid(), started_at=started_at, worker_id=worker_id)


def _success(
    started_at: int, now: int, output_json: str, final_sequence: int, output_sha256: bytes
) -> JobResult:
    return JobResult(
        success=True,
        outcome=Outcome.SUCCESS,
        exit_code=0,
        started_at=started_at,
        completed_at=now,
        output_json=output_json,
        final_sequence=final_sequence,
        output_sha256=output_sha256,
    )


def _redacted(printed: Sequence[OutputLines], redactor: LineRedactor | None) -> Sequence[OutputLines]:
    if redactor is None:
        return printed
    shown = [(redactor.feed(lines, is_stderr), is_stderr) for lines, is_stderr in printed]
    # What was held back, now that nothing follows.
    shown += [(redactor.flush(is_stderr), is_stderr) for is_stderr in (False, True)]
    return [(lines, is_stderr) for lines, is_stderr in shown if lines]
