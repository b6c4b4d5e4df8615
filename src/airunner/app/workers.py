"""Whoever does work, and the client it has, from settings."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from airunner.domain.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from airunner.client import AsyncClient
    from airunner.config import Settings
    from airunner.domain.retry import RetryPolicy
    from airunner.generation.job_verdicts import JobVerdicts
    from airunner.generation.start import GenerationWorker
    from airunner.handlers.registry import Registry
    from airunner.outbox.start import OutboxRelay
    from airunner.services.api import HoldingApi
    from airunner.worker.worker import Worker


def build_client(settings: Settings, *, retry: RetryPolicy | None = None) -> AsyncClient:
    """Return a client of the servers that the settings name."""
    from airunner.client.async_client import AsyncClient

    client = settings.client
    return AsyncClient(
        client.server,
        events_servers=client.events_server or None,
        api_key=client.api_key_text or None,
        ca_file=client.ca_file,
        timeout_seconds=client.timeout_seconds,
        retry=retry,
    )


def build_worker(
    settings: Settings,
    client: AsyncClient,
    *,
    once: bool = False,
    job_verdicts: JobVerdicts | None = None,
    jobs: HoldingApi | None = None,
    withheld: Collection[str] = (),
) -> Worker:
    """Return a worker over a client; its jobs inherit this process's environment but for our own part.

    `job_verdicts` is what `open_job_verdicts` gives for jobs that end with one. `jobs` is where its jobs come
    from, if that is not the client itself; `withheld` are more variables that jobs do not inherit.
    """
    from airunner.config import ConfigError, environment_for_jobs
    from airunner.worker.process.checkout import CheckoutRules
    from airunner.worker.publishing.spool_folder import SpoolFolder
    from airunner.worker.runner import AttemptEnvironment
    from airunner.worker.watchdog import StandardErrorStacks
    from airunner.worker.worker import Worker, WorkerOptions

    worker = settings.worker
    if not worker.commands and not worker.handlers:
        raise ConfigError(["worker.commands: a worker without commands needs worker.handlers"])
    wrap = job_verdicts.wrap if job_verdicts else lambda handlers: handlers
    environment = AttemptEnvironment(
        base_environment={
            name: text for name, text in environment_for_jobs(settings).items() if name not in withheld
        },
        runs_commands=worker.commands,
        work_dir=worker.work_dir,
        grace_seconds=worker.grace_seconds,
        secrets=_own_secrets(settings),
        redact_names=worker.redact_names,
        checkout=CheckoutRules(allow_file=worker.git_allow_file, depth=worker.git_depth),
        spool_folder=SpoolFolder(worker.spool_dir),
        spool_max_bytes=worker.spool_max_bytes,
    )
    options = WorkerOptions(
        queues=worker.queues,
        concurrency=worker.concurrency,
        once=once,
        worker_id=worker.worker_id or f"{socket.gethostname()}-{os.getpid()}",
        instance_id=worker.instance_id,
        visibility_timeout_seconds=worker.visibility_timeout_seconds,
        refused_token_seconds=worker.refused_token_seconds,
        drain_seconds=worker.drain_seconds,
        handlers=_load_handlers(worker.handlers, "worker.handlers", wrap) if worker.handlers else None,
        closed_queues=job_verdicts.gate.closed_queues if job_verdicts else None,
        overdue_elsewhere=(lambda: job_verdicts.overdue) if job_verdicts else None,
        handler_processes=worker.handler_processes,
        handler_sources=worker.handlers,
        environment=environment,
        stacks=StandardErrorStacks(),
    )
    return Worker(jobs or client, client, SystemClock(), options)


def build_generation_worker(settings: Settings) -> GenerationWorker:
    """Return a generation worker with the handlers of the settings."""
    from airunner.config import ConfigError
    from airunner.generation.start import GenerationWorker, check_settings, prepare_handlers

    check_settings(settings)
    if not settings.generation.handlers:
        raise ConfigError(["generation.handlers: a generation worker needs handlers"])
    handlers = _load_handlers(settings.generation.handlers, "generation.handlers", prepare_handlers)
    return GenerationWorker(settings, handlers, SystemClock())


def build_outbox_relay(settings: Settings) -> OutboxRelay:
    """Return a relay; with handlers it also ends generation work that was lost."""
    from airunner.generation.lost import lost_loops
    from airunner.generation.start import prepare_handlers
    from airunner.outbox.start import OutboxRelay

    clock = SystemClock()
    sources = settings.generation.handlers
    if not sources:
        return OutboxRelay(settings, clock)
    handlers = _load_handlers(sources, "generation.handlers", prepare_handlers)
    schema = settings.postgres.schema
    return OutboxRelay(
        settings,
        clock,
        more_loops=lambda database, jobs: lost_loops(database, schema, handlers, clock, jobs=jobs),
    )


def _own_secrets(settings: Settings) -> frozenset[bytes]:
    from airunner.domain.limits import MIN_SECRET_BYTES

    key = settings.client.api_key_text.encode()
    return frozenset({key} if len(key) >= MIN_SECRET_BYTES else ())


def _load_handlers(
    sources: Sequence[str], setting: str, prepare: Callable[[Registry], Registry] = lambda found: found
) -> Registry:
    from airunner.config import ConfigError
    from airunner.handlers.arguments import HandlerError
    from airunner.handlers.loading import load_handlers

    try:
        return prepare(load_handlers(sources))
    except HandlerError as error:
        raise ConfigError([f"{setting}: {error}"]) from error
