"""Running one attempt at a job, from its delivery to its outcome."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from airunner.domain.job import ProcessType
from airunner.worker.attempt import log_end, log_start
from airunner.worker.disk_thread import DiskThread
from airunner.worker.handlers.attempt import HandlerAttempt
from airunner.worker.process.checkout import CheckoutRules, checkout_refusal, repository_secrets
from airunner.worker.process.command import CommandAttempt
from airunner.worker.process.process import CANNOT_START, ProcessSpec
from airunner.worker.process.reaper import OrphanReaper
from airunner.worker.process.work_folders import WorkFolder, WorkFolders
from airunner.worker.publishing.background_spool import BackgroundSpool
from airunner.worker.publishing.publisher import Publisher
from airunner.worker.publishing.report import AttemptReport, through_one_cancellation
from airunner.worker.publishing.spool import SPOOL_MAX_BYTES, Spool
from airunner.worker.publishing.spool_folder import SpoolFolder
from airunner.worker.secrets.forms import secret_values
from airunner.worker.secrets.redaction import LineRedactor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from airunner.domain.clock import Clock
    from airunner.domain.job import Job, JobParams
    from airunner.queues.base import Delivery
    from airunner.services.api import EventsApi
    from airunner.worker.attempt import Attempt, JobOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnvironment:
    """What a worker gives to each of its attempts, and the limits that it holds them to."""

    base_environment: Mapping[str, str] = field(default_factory=dict)
    """The variables of every process, beside those of its job; it inherits nothing else from the worker."""
    runs_commands: bool = True
    """Whether processes are started at all; a worker that starts none only calls its handlers."""
    work_dir: Path | None = None
    """Where the folders of attempts are made; None is the system's folder for temporary files."""
    grace_seconds: float = 10.0
    """How long a process, or a handler, that was asked to end may take."""
    secrets: frozenset[bytes] = field(default=frozenset(), repr=False)
    """What no output may show, whatever the job: the worker's own key."""
    redact_names: tuple[str, ...] = ()
    """Patterns of names of variables whose values are secret, beside those that a job calls so."""
    checkout: CheckoutRules = CheckoutRules()
    """How repositories of jobs are checked out."""
    spool_folder: SpoolFolder = field(default_factory=SpoolFolder)
    """Where output waits while the server is away."""
    spool_max_bytes: int = SPOOL_MAX_BYTES
    """How much output one attempt may keep there; with 0 its process has to wait instead."""


class JobRunner:
    """Runs jobs that were delivered. A non-zero exit is an outcome like any other, never an error."""

    def __init__(self, events: EventsApi, clock: Clock, environment: AttemptEnvironment) -> None:
        self._events = events
        self._clock = clock
        self._environment = environment
        self.reaper = OrphanReaper()
        """Ends what processes of jobs, and of handlers, leave behind."""
        self._disk = DiskThread("spool")
        self.folders = WorkFolders(environment.work_dir)
        """The folders of attempts."""
        # Costly to build, and for most jobs the same.
        self._own_redactor = LineRedactor(environment.secrets) if environment.secrets else None

    def close(self) -> None:
        """Kill what jobs left running, in whatever session. Blocks for a moment."""
        self._disk.close()
        self.reaper.close()

    async def process(self, delivery: Delivery[Attempt]) -> JobOutcome:
        """Run the job and return how it ended, with the events that were not published before."""
        job = delivery.body.job
        if not delivery.body.call:
            log_start(job)
        report = AttemptReport(
            delivery, self._publisher(delivery), self._clock, redactor=self.redactor_for(job.params)
        )
        try:
            outcome = await self._run(delivery, report)
        finally:
            await report.close()
        log_end(job, outcome.result)
        return outcome

    def redactor_for(self, params: JobParams) -> LineRedactor | None:
        """Return what hides the secrets of the job and of the worker; None if there are none."""
        environment = self._environment
        secrets = secret_values(params, environment.base_environment, environment.redact_names)
        secrets |= repository_secrets(params)
        if secrets:
            return LineRedactor(secrets | environment.secrets)
        return self._own_redactor.unused_copy() if self._own_redactor else None

    async def _run(self, delivery: Delivery[Attempt], report: AttemptReport) -> JobOutcome:
        job, call = delivery.body.job, delivery.body.call
        if call:
            grace_seconds = self._environment.grace_seconds
            return await HandlerAttempt(delivery, report, self._clock, grace_seconds=grace_seconds).run(call)
        began_at = self._clock.now()
        refusal = self._refusal(job.params)
        if refusal:
            return await report.refuse(refusal, CANNOT_START, began_at)
        try:
            async with self._folder(job.params) as folder:
                self.reaper.ensure()
                attempt = CommandAttempt(delivery, report, self._clock)
                return await attempt.run(self._spec(job, folder), self._environment.checkout)
        except _NoFolder as error:
            return await report.refuse(str(error), CANNOT_START, began_at)

    def _publisher(self, delivery: Delivery[Attempt]) -> Publisher:
        environment, job = self._environment, delivery.body.job
        spool = Spool(
            environment.spool_folder, job.job_id, job.attempt, max_bytes=environment.spool_max_bytes
        )
        return Publisher(
            delivery.body,
            events=self._events,
            clock=self._clock,
            on_cancel=delivery.cancelled.set,
            spool=BackgroundSpool(spool, self._disk),
        )

    def _refusal(self, params: JobParams) -> str:
        """Return why this worker cannot run a job; empty if it can."""
        environment = self._environment
        if params.handler:
            return f"no handler named {params.handler} on this worker"
        if not environment.runs_commands:
            return "this worker runs no commands"
        if params.repository_url:
            variables = {**environment.base_environment, **params.environment}
            return checkout_refusal(params, variables, environment.checkout)
        return ""

    @asynccontextmanager
    async def _folder(self, params: JobParams) -> AsyncIterator[str]:
        """Provide the working directory of the job, or a new folder that is removed afterwards."""
        if params.working_directory and not params.repository_url:
            yield params.working_directory
            return
        # On a thread: the disk may hang, and the folder may hold a large build when it is removed.
        disk, made = DiskThread("work folder"), list[WorkFolder]()
        try:
            try:
                await disk.call(lambda: made.append(self.folders.make()))
            except OSError as error:
                raise _NoFolder(f"cannot make a working directory: {error.strerror}") from None
            yield str(made[0].path)
        finally:
            # By now the attempt has ended, and its end stands.
            removing = disk.call(lambda: self.folders.remove(*made))
            disk.close()
            await through_one_cancellation(removing, lambda: None)

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
                **self.reaper.environment,
            },
            working_directory=folder,
            pty=params.process_type is ProcessType.PTY,
            timeout_seconds=params.timeout_seconds or None,
            grace_seconds=self._environment.grace_seconds,
        )


class _NoFolder(Exception):
    """The attempt has no folder for its files."""
