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
from airunner.worker.handlers.attempt import HandlerAttempt
from airunner.worker.process.checkout import CheckoutRules, checkout_refusal, repository_secrets
from airunner.worker.process.checkout_attempt import CheckoutAttempt
from airunner.worker.process.command import CommandAttempt
from airunner.worker.process.process import ProcessSpec
from airunner.worker.publishing.publisher import Publisher
from airunner.worker.publishing.report import AttemptReport
from airunner.worker.publishing.spool import SPOOL_MAX_BYTES, Spool
from airunner.worker.publishing.spool_folder import SpoolFolder
from airunner.worker.secrets.forms import secret_values
from airunner.worker.secrets.redaction import LineRedactor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from airunner.domain.clock import Clock
    from airunner.domain.job import Job, JobParams, JobResult
    from airunner.queues.base import Delivery
    from airunner.services.api import EventsApi
    from airunner.worker.attempt import Attempt, JobOutcome

_log = structlog.get_logger("airunner.worker")

_CANNOT_BEGIN: Final = 126


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnvironment:
    """What every process of a worker gets."""

    base_environment: Mapping[str, str] = field(default_factory=dict)
    work_dir: Path | None = None
    """Where the folders of attempts are made; None is the system's place for temporary files."""
    grace_seconds: float = 10.0
    redact_names: tuple[str, ...] = ()
    """Patterns of names of variables whose values are secret, beside those that a job calls so."""
    checkout: CheckoutRules = CheckoutRules()
    spool_folder: SpoolFolder = field(default_factory=SpoolFolder)
    spool_max_bytes: int = SPOOL_MAX_BYTES


class JobRunner:
    """Handles deliveries of jobs. A non-zero exit is an outcome like any other, never an error."""

    def __init__(
        self,
        events: EventsApi,
        clock: Clock,
        environment: AttemptEnvironment,
    ) -> None:
        self._events = events
        self._clock = clock
        self._environment = environment

    async def handle(self, delivery: Delivery[Attempt]) -> JobOutcome:
        """Do the job and return how it ended, with the events that were not published before."""
        job = delivery.body.job
        if not delivery.body.call:
            _log.info("job.start", job_id=job.job_id, attempt=job.attempt, queue=job.queue)
        batcher = Batcher(job.execution.batching)
        report = AttemptReport(
            delivery,
            batcher,
            self._clock,
            open_publisher=lambda: self._publisher(delivery, batcher),
            redactor=self._redactor(job.params),
        )
        try:
            outcome = await self._handle(delivery, report)
        finally:
            await report.close()
        log_end(job, outcome.result)
        return outcome

    async def _handle(self, delivery: Delivery[Attempt], report: AttemptReport) -> JobOutcome:
        job, call = delivery.body.job, delivery.body.call
        if call:
            return await HandlerAttempt(delivery, report, clock=self._clock).handle(call)
        refusal = self._refusal(job.params)
        if refusal:
            return await report.refuse(refusal, _CANNOT_BEGIN, self._clock.now())
        try:
            async with self._folder(job.params) as folder:
                spec = self._spec(job, folder)
                if job.params.repository_url:
                    attempt = CheckoutAttempt(delivery, report, self._clock)
                    return await attempt.handle_in_checkout(spec, self._environment.checkout)
                return await CommandAttempt(delivery, report, self._clock).handle(spec)
        except _NoFolder as error:
            return await report.refuse(str(error), _CANNOT_BEGIN, self._clock.now())

    def _publisher(self, delivery: Delivery[Attempt], batcher: Batcher) -> Publisher:
        around, job = self._environment, delivery.body.job
        return Publisher(
            delivery.body,
            batcher,
            events=self._events,
            clock=self._clock,
            on_cancel=delivery.cancelled.set,
            spool=Spool(around.spool_folder, job.job_id, job.attempt, max_bytes=around.spool_max_bytes),
        )

    def _redactor(self, params: JobParams) -> LineRedactor | None:
        """Return what hides the job's secrets; None if it has none, which is the common case."""
        around = self._environment
        secrets = secret_values(params, around.base_environment, around.redact_names)
        secrets |= repository_secrets(params)
        return LineRedactor(secrets) if secrets else None

    def _refusal(self, params: JobParams) -> str:
        """Return why this worker cannot do a job; empty if it can."""
        around = self._environment
        if params.handler:
            return f"no handler named {params.handler} on this worker"
        if params.repository_url:
            environment = {**around.base_environment, **params.environment}
            return checkout_refusal(params, environment, around.checkout)
        return ""

    @asynccontextmanager
    async def _folder(self, params: JobParams) -> AsyncIterator[str]:
        """Give the folder that was asked for, or a fresh one that is removed afterwards."""
        if params.working_directory and not params.repository_url:
            yield params.working_directory
            return
        try:
            folder = tempfile.mkdtemp(prefix="airunner-", dir=self._environment.work_dir)
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
                **self._environment.base_environment,
                **params.environment,
                "AIRUNNER_JOB_ID": job.job_id,
                "AIRUNNER_ATTEMPT": str(job.attempt),
                "AIRUNNER_QUEUE": job.queue,
            },
            working_directory=folder,
            pty=params.process_type is ProcessType.PTY,
            timeout_seconds=params.timeout_seconds or None,
            grace_seconds=self._environment.grace_seconds,
        )


def log_end(job: Job, result: JobResult) -> None:
    """Log how an attempt ended."""
    _log.info(
        "job.end",
        job_id=job.job_id,
        attempt=job.attempt,
        queue=job.queue,
        outcome=result.outcome.name,
        exit_code=result.exit_code,
        duration_ms=result.completed_at - result.started_at,
        events=result.final_sequence,
    )


class _NoFolder(Exception):
    """There is no place for the attempt's files."""
