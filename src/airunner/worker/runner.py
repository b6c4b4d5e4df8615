"""The worker's handler: an attempt comes in, its outcome goes out."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from airunner.domain.batching import Batcher
from airunner.domain.job import ProcessType
from airunner.worker.command import CommandAttempt
from airunner.worker.process import ProcessSpec
from airunner.worker.publisher import Publisher
from airunner.worker.redaction import LineRedactor
from airunner.worker.report import AttemptReport
from airunner.worker.secret_forms import secret_values

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from airunner.domain.clock import Clock
    from airunner.domain.job import Job, JobParams
    from airunner.queues.base import Delivery
    from airunner.services.api import EventsApi
    from airunner.worker.attempt import Attempt, JobOutcome

_log = structlog.get_logger("airunner.worker")

_CANNOT_BEGIN: Final = 126


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What every process of a worker gets."""

    base_environment: Mapping[str, str] = field(default_factory=dict)
    work_dir: Path | None = None
    """Where the folders of attempts are made; None is the system's place for temporary files."""
    grace_seconds: float = 10.0
    redact_names: tuple[str, ...] = ()
    """Patterns of names of variables whose values are secret, beside those that a job calls so."""


class JobRunner:
    """Handles deliveries of jobs. A non-zero exit is an outcome like any other, never an error."""

    def __init__(self, events: EventsApi, clock: Clock, surroundings: Surroundings) -> None:
        self._events = events
        self._clock = clock
        self._surroundings = surroundings

    async def handle(self, delivery: Delivery[Attempt]) -> JobOutcome:
        """Do the job and return how it ended, with the events that were not published before."""
        job = delivery.body.job
        log = _log.bind(job_id=job.job_id, attempt=job.attempt, queue=job.queue)
        log.info("job.start")
        batcher = Batcher(job.execution.batching)
        publisher = Publisher(
            delivery.body,
            batcher,
            events=self._events,
            clock=self._clock,
            on_cancel=delivery.cancelled.set,
        )
        try:
            report = AttemptReport(
                delivery,
                publisher=publisher,
                batcher=batcher,
                clock=self._clock,
                redactor=self._redactor(job.params),
            )
            outcome = await self._handle(delivery, report)
        finally:
            await publisher.abandon()
        result = outcome.result
        log.info(
            "job.end",
            outcome=result.outcome.name,
            exit_code=result.exit_code,
            duration_ms=result.completed_at - result.started_at,
            events=result.final_sequence,
        )
        return outcome

    async def _handle(self, delivery: Delivery[Attempt], report: AttemptReport) -> JobOutcome:
        job = delivery.body.job
        refusal = _refusal(job.params)
        if refusal:
            return await report.refuse(refusal, _CANNOT_BEGIN, self._clock.now())
        try:
            async with self._folder(job.params) as folder:
                attempt = CommandAttempt(delivery, report, self._clock)
                return await attempt.handle(self._spec(job, folder))
        except _NoFolder as error:
            return await report.refuse(str(error), _CANNOT_BEGIN, self._clock.now())

    def _redactor(self, params: JobParams) -> LineRedactor | None:
        """Return what hides the job's secrets; None if it has none, which is the common case."""
        around = self._surroundings
        secrets = secret_values(params, around.base_environment, around.redact_names)
        return LineRedactor(secrets) if secrets else None

    @asynccontextmanager
    async def _folder(self, params: JobParams) -> AsyncIterator[str]:
        """Give the folder that was asked for, or a fresh one that is removed afterwards."""
        if params.working_directory:
            yield params.working_directory
            return
        try:
            folder = tempfile.mkdtemp(prefix="airunner-", dir=self._surroundings.work_dir)
        except OSError as error:
            raise _NoFolder(f"cannot make a working directory: {error.strerror}") from None
        try:
            yield folder
        finally:
            # In a thread: it may hold a large build.
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _spec(self, job: Job, folder: str) -> ProcessSpec:
        params = job.params
        return ProcessSpec(
            command=params.command,
            args=params.args,
            environment={
                **self._surroundings.base_environment,
                **params.environment,
                "AIRUNNER_JOB_ID": job.job_id,
                "AIRUNNER_ATTEMPT": str(job.attempt),
                "AIRUNNER_QUEUE": job.queue,
            },
            working_directory=folder,
            pty=params.process_type is ProcessType.PTY,
            timeout_seconds=params.timeout_seconds or None,
            grace_seconds=self._surroundings.grace_seconds,
        )


class _NoFolder(Exception):
    """There is no place for the attempt's files."""


def _refusal(params: JobParams) -> str:
    """Return why this worker cannot do a job; empty if it can."""
    if params.handler:
        return f"no handler named {params.handler} on this worker"
    if params.repository_url:
        return "this worker does not clone repositories"
    return ""
