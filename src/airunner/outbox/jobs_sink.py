"""The sink of jobs: the JobService of airunner itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.domain.errors import (
    AirunnerError,
    DeadlineExceeded,
    InternalError,
    MessageTooLarge,
    NotFound,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    error_text,
)
from airunner.domain.job import JobParams
from airunner.domain.requests import EnqueueRequest
from airunner.outbox.rows import UNKNOWN_QUEUE, NotTried, Rejected, Sent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.domain.answers import Enqueued
    from airunner.outbox.rows import ClaimedRow, SendOutcome
    from airunner.services.api import JobsApi

MAX_JOB_ATTEMPTS: Final = 5
"""How many tries a job of the outbox has, as the redrive policy of a message queue gives it."""
_MAX_REASON: Final = 500
# Of the sink, not of the row.
_MAY_PASS: Final = (Unavailable, DeadlineExceeded, ResourceExhausted, Unauthenticated)


class JobsSink:
    """Makes a job of each row, in the job queue of the same name, through one API key.

    The id of the row is the request id: a row that is sent twice is one job.
    """

    max_rows = 100

    def __init__(self, jobs: JobsApi) -> None:
        self._jobs = jobs

    def knows(self, queue: str) -> bool:  # noqa: ARG002  as the protocol has it
        """Return True: the server decides."""
        return True

    async def send(self, queue: str, rows: Sequence[ClaimedRow]) -> Sequence[SendOutcome]:
        """Enqueue jobs in one call."""
        requests = [
            EnqueueRequest(
                request_id=row.row_id,
                queue=queue,
                params=JobParams(handler=row.name, payload_json=payload_of(row.body)),
                max_attempts=MAX_JOB_ATTEMPTS,
            )
            for row in rows
        ]
        try:
            answers = await self._jobs.enqueue_jobs(requests)
        except AirunnerError as error:
            return [NotTried(_reason(error))] * len(rows)
        return [_judge_job(answer) for answer in answers]


def payload_of(body: str) -> str:
    """Return the payload within a body as PostgreSQL writes it: its last key, exactly as it stands there."""
    # The text cannot be part of the name before it, whose quotes are escaped.
    return body[body.index('"payload": ') + len('"payload": ') : -1]


def _judge_job(answer: Enqueued | AirunnerError) -> SendOutcome:
    if not isinstance(answer, AirunnerError):
        return Sent(answer.job_id)
    if isinstance(answer, _MAY_PASS) and not isinstance(answer, MessageTooLarge):
        return NotTried(_reason(answer))
    reason = UNKNOWN_QUEUE if isinstance(answer, NotFound) else _reason(answer)
    return Rejected(reason, for_good=not isinstance(answer, InternalError))


def _reason(error: AirunnerError) -> str:
    return error_text(error)[:_MAX_REASON]
