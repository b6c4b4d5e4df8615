"""The composition root: the only module that names concrete backends.

What is built is imported when it is built, so that a client command does not load a server.
"""

from __future__ import annotations

import os
import socket
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from airunner.domain.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from airunner.aws.cloudwatch import CloudWatchExporter
    from airunner.aws.provision import Resource
    from airunner.client import AsyncClient
    from airunner.config import FleetPart, Settings
    from airunner.domain.clock import Clock
    from airunner.domain.fleet import HousekeepingRun, TaskType
    from airunner.domain.retry import RetryPolicy
    from airunner.domain.token import TokenSigner
    from airunner.fleet.aws.connection import FleetConnection
    from airunner.fleet.process import FleetProcess
    from airunner.generation.job_verdicts import JobVerdicts
    from airunner.generation.session_api.service import GenerationService
    from airunner.generation.start import GenerationWorker
    from airunner.handlers.registry import Registry
    from airunner.outbox.start import OutboxRelay
    from airunner.server.companions import CompanionKind
    from airunner.server.run import Server
    from airunner.services.admission import AdmissionLimits
    from airunner.services.api import HoldingApi
    from airunner.services.composition import Replica, Services
    from airunner.services.jobs import InstanceGate
    from airunner.services.periodic import Periodic
    from airunner.stores.base import JobStore
    from airunner.stores.registry import StoreKind
    from airunner.worker.worker import Worker

_DAY_MS = 24 * 3600 * 1000
_EXPORT_SECONDS = 60.0
_FLEET_EXPORT = "cloudwatch.fleet"


def build_server(
    settings: Settings, *, exports_metrics: bool = False, companions: Sequence[CompanionKind] = ()
) -> Server:
    """Return the server that the settings describe; with `exports_metrics` it also sends to CloudWatch."""
    from airunner import telemetry
    from airunner.server.asgi import AppOptions
    from airunner.server.run import ServeOptions, Server
    from airunner.services.queue_metrics import QueueMetrics

    companions = [*companions, *_companions(settings)]
    options = ServeOptions(
        host=settings.listen.host,
        port=settings.listen.port,
        app=AppOptions(
            services=settings.services,
            no_auth=settings.no_auth,
            behind_proxy=settings.server.behind_proxy,
            max_message_bytes=settings.limits.max_message_bytes,
        ),
        cert_file=settings.tls.cert_file,
        key_file=settings.tls.key_file,
        allow_plaintext=settings.server.behind_proxy or settings.server.insecure_plaintext,
        shutdown_grace_seconds=settings.limits.shutdown_grace_seconds,
    )
    clock = SystemClock()
    signer = build_signer(settings)
    fleet = _fleet_of_server(settings)
    services = build_services(settings, clock, signer, fleet)
    if fleet:
        _add_fleet(fleet, services)
    companions += _fleet_companions(settings, services, signer)
    _add_application(settings, services)
    services.add_loop(services.settings.periodic())
    services.add_loop(QueueMetrics(services.jobs, clock, services.store.dead_letters).periodic())
    generations = build_generations(settings, services)
    exporters = build_exporters(settings, clock) if exports_metrics else {}
    for name, exporter in exporters.items():
        services.add_loop(build_export_loop(exporter, clock, name))
    if parts := services.store.parts:
        telemetry.store_well_time.follow(lambda: parts.well_seconds)
    telemetry.streams_active.follow(lambda: services.watchers.streams)
    telemetry.dequeues_waiting.follow(lambda: services.dispatcher.waiting)
    telemetry.calls_waiting.follow(lambda: services.admission.waiting)
    telemetry.calls_body_bytes.follow(lambda: services.admission.body_bytes)
    resources: list[AbstractAsyncContextManager[object]] = [*exporters.values()]
    if fleet:
        resources.append(fleet)
    return Server(services, options, resources, generations, companions)


def _add_application(settings: Settings, services: Services) -> None:
    """Let a server that knows the application's database change its settings, and serve its dead letters."""
    if not settings.postgres.dsn_text:
        return
    from airunner.generation.app_settings import AppSettings
    from airunner.generation.dead_letters import generation_dead_letters
    from airunner.outbox.schema import GENERATION_QUEUE
    from airunner.outbox.start import open_database
    from airunner.services.settings.registry import GENERATION_CONCURRENCY, Home

    home = AppSettings(lambda: open_database(settings), settings.postgres.schema)
    configured = {GENERATION_CONCURRENCY.name: settings.generation.concurrency}
    services.settings.add_home(Home.POSTGRES, home, configured)
    if letters := generation_dead_letters(settings, services.clock):
        services.admin.add_dead_letters(GENERATION_QUEUE, letters)


def _companions(settings: Settings) -> list[CompanionKind]:
    """Return what works in the process of a server; what cannot work is an error at once."""
    if not (settings.generation.queue_url or settings.outbox.queues or settings.generation.start_worker):
        return []
    from airunner.generation.layout import check_apart
    from airunner.server.companions import CompanionKind

    check_apart(settings)
    if not settings.generation.start_worker:
        return []
    build_generation_worker(settings)
    return [CompanionKind(name="generation", build=lambda: build_generation_worker(settings))]


def _fleet_of_server(settings: Settings) -> FleetConnection | None:
    """Return what a server needs of a fleet that the settings name: its records and queues, no machines."""
    if not (settings.fleet.table or settings.fleet.run):
        return None
    return build_fleet_connection(settings, clients=["dynamodb", "sqs"])


def _add_fleet(fleet: FleetConnection, services: Services) -> None:
    """Let a server tell of a fleet, ask for its tasks, and serve its dead letters."""
    from airunner.config import FleetPart
    from airunner.fleet.dead_letters import FleetDeadLetters
    from airunner.fleet.office import FleetDesk

    services.fleet.attach(FleetDesk(fleet, services.clock))
    for part in (FleetPart.TERMINATION, FleetPart.HOUSEKEEPING):
        services.admin.add_dead_letters(part.value, FleetDeadLetters(fleet, part, services.clock))


def _fleet_companions(settings: Settings, services: Services, signer: TokenSigner) -> list[CompanionKind]:
    """Return the parts of a fleet that work in the process of a server."""
    if not settings.fleet.run:
        return []
    from airunner.server.companions import CompanionKind

    _check_fleet(settings)

    def kind(part: FleetPart) -> CompanionKind:
        return CompanionKind(
            name=f"fleet.{part.value}", build=lambda: _fleet_process(settings, part, services, signer)
        )

    return [kind(part) for part in settings.fleet.run]


def build_fleet_process(settings: Settings, part: FleetPart) -> FleetProcess:
    """Return a part of a fleet's work for a process of its own, on the store and the keys of the servers.

    ConfigError where the store is inside a server, which is then the only place for what needs jobs.
    """
    from airunner.config import ClusterSettings, ConfigError, FleetPart, StoreType

    if part is FleetPart.SCHEDULE:
        _check_fleet(settings)
        from airunner.fleet.start import make_schedule

        return make_schedule(settings, SystemClock())
    if settings.store.type is not StoreType.AWS:
        raise ConfigError([
            f"fleet.run: with store.type {settings.store.type} a fleet works in the process of the server: "
            f"set fleet.run to {part.value} there"
        ])  # fmt: skip
    _check_fleet(settings)
    signer = build_signer(settings)
    # It serves nobody, so nobody has to reach it.
    alone = settings.but(cluster=ClusterSettings())
    clock = SystemClock()
    services = build_services(alone, clock, signer)
    resources: list[AbstractAsyncContextManager[object]] = [services]
    if exporter := build_fleet_exporter(settings, clock):
        services.add_loop(build_export_loop(exporter, clock, _FLEET_EXPORT))
        # Around the services, since one of their loops sends with it.
        resources.insert(0, exporter)
    return _fleet_process(settings, part, services, signer, resources=resources)


def _fleet_process(
    settings: Settings,
    part: FleetPart,
    services: Services,
    signer: TokenSigner,
    *,
    resources: Sequence[AbstractAsyncContextManager[object]] = (),
) -> FleetProcess:
    from airunner.fleet.start import FleetJobs, make_process

    jobs = FleetJobs(ends=services.jobs, store=services.store, signer=signer.terminations())
    return make_process(part, settings, jobs, SystemClock(), resources=resources)


def build_fleet_connection(settings: Settings, *, clients: Sequence[str] = ()) -> FleetConnection:
    """Return the ports of a fleet, still to be opened; `clients` are the services of AWS to call, or all."""
    _check_fleet(settings)
    from airunner.aws.clients import OF_A_FLEET
    from airunner.fleet.aws.connection import FleetConnection

    return FleetConnection(settings, SystemClock(), clients=clients or OF_A_FLEET)


async def run_fleet_task(
    settings: Settings, task: TaskType, *, dry_run: bool = False, limit: int = 0, force: bool = False
) -> HousekeepingRun:
    """Run a task of housekeeping here, on the store of the settings, whether or not a server runs on it.

    LeaseTaken, which names it, where another process runs the task.
    """
    clock = SystemClock()
    fleet = build_fleet_connection(settings)
    store = open_store_beside(settings, must_exist=True)
    from airunner.fleet.messages.housekeeping import HousekeepingMessage
    from airunner.fleet.start import make_housekeeper

    message = HousekeepingMessage(task_type=task, timestamp=clock.now(), dry_run=dry_run, limit=limit)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(fleet)
        await fleet.check_table()
        stack.push_async_callback(store.close)
        await store.open()
        return await make_housekeeper(settings, fleet, store, clock).run(message, force=force)


def _check_fleet(settings: Settings) -> None:
    """Refuse at once what a fleet cannot work with: no SDK, no region, a job queue that is one of its own."""
    from airunner.aws.connect import find_region, need_sdk

    need_sdk()
    find_region(settings)
    from airunner.fleet.aws.connection import check_apart

    check_apart(settings)


def build_generations(settings: Settings, services: Services) -> GenerationService | None:
    """Return the service of generations beside others, if it is among those that the settings name."""
    from airunner.config import ConfigError, ServiceName

    if ServiceName.GENERATIONS not in settings.services:
        return None
    if not settings.postgres.dsn_text:
        raise ConfigError(["services: generations needs postgres.dsn, set there or as DATABASE_URL"])
    from airunner.generation.layout import check_apart
    from airunner.generation.session_api.start import make_generations

    check_apart(settings)
    return make_generations(settings, services)


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


def build_services(
    settings: Settings,
    clock: Clock,
    signer: TokenSigner | None = None,
    fleet: FleetConnection | None = None,
) -> Services:
    """Return the services on the store that the settings name, with its own signer unless one is given.

    With `fleet.table` set they ask a fleet, which is to be opened before them, whom to give no jobs.
    """
    from airunner.domain.execution import BatchingConfig, ExecutionConfig
    from airunner.services.composition import ServiceRules, Services
    from airunner.services.jobs import JobRules
    from airunner.stores.records import Retention

    batching = settings.execution.batching
    rules = ServiceRules(
        jobs=JobRules(
            execution=ExecutionConfig(
                batching=BatchingConfig(
                    flush_interval_seconds=batching.flush_interval_seconds,
                    max_batch_size=batching.max_batch_size,
                    max_batch_bytes=batching.max_batch_bytes,
                    playback_interval_millis=batching.playback_interval_millis,
                    adaptive=batching.adaptive,
                ),
                heartbeat_interval_seconds=settings.execution.heartbeat_interval_seconds,
            ),
            visibility_timeout_seconds=settings.defaults.visibility_timeout_seconds,
            max_attempts=settings.defaults.max_attempts,
            max_queued=settings.store.max_queued_jobs_per_queue,
        ),
        retention=Retention(
            jobs_ms=(
                settings.store.job_retention_days * _DAY_MS if settings.store.purge_by == "server" else None
            ),
            events_ms=settings.store.event_retention_days * _DAY_MS,
        ),
        admission=_admission_limits(settings),
        max_streams_per_job=settings.limits.max_streams_per_job,
        maintenance_interval_seconds=settings.limits.maintenance_interval_seconds,
    )
    replica = _build_replica(settings)
    gate = _instance_gate(settings, clock, fleet)
    signer = signer or build_signer(settings)
    return Services(build_store(settings, clock), clock, signer, rules, replica, gate)


def _instance_gate(settings: Settings, clock: Clock, fleet: FleetConnection | None) -> InstanceGate | None:
    if fleet is None or not settings.fleet.table:
        return None
    from airunner.fleet.draining import DrainingGate

    return DrainingGate(fleet.records, clock)


def _build_replica(settings: Settings) -> Replica | None:
    """Return how this server and others ring each other, if it says where it is."""
    if not settings.cluster.advertise:
        return None
    from airunner.server.bells import HttpBellPost
    from airunner.services.composition import Replica

    return Replica(address=settings.cluster.advertise, post=HttpBellPost(settings.client.ca_file))


def _admission_limits(settings: Settings) -> AdmissionLimits:
    from airunner.services.admission import AdmissionLimits

    limits = settings.limits
    return AdmissionLimits(
        max_body_bytes=limits.max_body_bytes,
        max_waiting_calls=limits.max_waiting_calls,
        max_streams=limits.max_streams,
        max_streams_per_principal=limits.max_streams_per_principal,
        max_queue_names=limits.max_queue_names,
        calls_per_second=limits.calls_per_second,
        call_burst=limits.call_burst,
        failed_keys_per_minute=limits.failed_keys_per_minute,
    )


def build_store(settings: Settings, clock: Clock) -> JobStore:
    """Return the store that the settings name, for a server."""
    return _store_kind(settings).build(settings, clock)


def open_store_beside(settings: Settings, *, must_exist: bool = False) -> JobStore:
    """Return the durable store of the settings for a tool, whether or not a server runs on it."""
    return _store_kind(settings).build_beside(settings, SystemClock(), must_exist)


def locate_store(settings: Settings) -> str:
    """Return where the store of the settings is, in words for people."""
    return _store_kind(settings).locate(settings)


def back_up_store(settings: Settings, target: Path) -> bool:
    """Copy the store of the settings into a new file, also while a server uses it.

    Return whether the key that signs task tokens came along, into a second file.
    """
    return _store_kind(settings).back_up(settings, target)


def restore_store(settings: Settings, backup: Path, *, force: bool = False) -> bool:
    """Make such a copy the store of the settings; return whether its token key came along."""
    return _store_kind(settings).restore(settings, backup, force)


def _store_kind(settings: Settings) -> StoreKind:
    from airunner.stores.registry import STORES

    return STORES[settings.store.type]


def build_exporters(settings: Settings, clock: Clock) -> dict[str, CloudWatchExporter]:
    """Return what sends the metrics of a server to CloudWatch, by the names of their loops."""
    found = {
        "cloudwatch": build_exporter(settings, clock),
        _FLEET_EXPORT: build_fleet_exporter(settings, clock) if settings.fleet.run else None,
    }
    return {name: exporter for name, exporter in found.items() if exporter}


def build_exporter(settings: Settings, clock: Clock) -> CloudWatchExporter | None:
    """Return what sends metrics to CloudWatch, if the settings name a namespace there."""
    if not settings.telemetry.cloudwatch_namespace:
        return None
    from airunner import telemetry
    from airunner.aws.connect import build_aws

    aws = build_aws(settings, clock, clients=["cloudwatch"])
    from airunner.aws.cloudwatch import CloudWatchExporter

    namespace = settings.telemetry.cloudwatch_namespace
    return CloudWatchExporter(aws, namespace, telemetry.SERVER_METRICS, clock)


def build_fleet_exporter(settings: Settings, clock: Clock) -> CloudWatchExporter | None:
    """Return what sends the metrics of a fleet to CloudWatch, if they have a namespace; one in a process.

    Its calls are made once: counts may be lost, and are never doubled.
    """
    if not settings.fleet.cloudwatch_namespace:
        return None
    from airunner.aws.connect import build_aws
    from airunner.domain.retry import RetryPolicy
    from airunner.telemetry.fleet_metrics import CLOUDWATCH_NAMES

    aws = build_aws(settings, clock, clients=["cloudwatch"], policy=RetryPolicy(attempts=1))
    from airunner.aws.cloudwatch import CloudWatchExporter

    return CloudWatchExporter(
        aws,
        settings.fleet.cloudwatch_namespace,
        tuple(CLOUDWATCH_NAMES),
        clock,
        names=CLOUDWATCH_NAMES,
        at_most_once=True,
    )


def build_export_loop(exporter: CloudWatchExporter, clock: Clock, name: str = "cloudwatch") -> Periodic:
    """Return the loop that sends metrics once a minute."""
    from airunner.services.periodic import Periodic

    return Periodic(
        name,
        exporter.send,
        clock=clock,
        interval_seconds=_EXPORT_SECONDS,
        failure_event="metrics.export_failed",
    )


async def provision_aws(
    settings: Settings, *, deletion_protection: bool = False, dry_run: bool = False
) -> list[Resource]:
    """Make or mend everything that the store on AWS needs, and mark the tables; a dry run only tells.

    FailedPrecondition, before anything is made, where a table belongs to another environment, or the
    credentials to another account than that of the settings.
    """
    from airunner.aws.connect import build_aws

    clock = SystemClock()
    await _check_account(settings, clock)
    async with build_aws(settings, clock) as aws:
        from airunner.aws.provision import provision
        from airunner.aws.table_meta import TableOwnership
        from airunner.stores.aws.layout import Layout, owned_table, resources

        layout = replace(Layout.of(settings.store), deletion_protection=deletion_protection)
        ownership = TableOwnership(aws, owned_table(layout), layout.env)
        await ownership.refuse_others()
        made = await provision(aws, resources(layout), clock, dry_run=dry_run)
        if not dry_run:
            await ownership.ensure()
        return made


async def provision_generation(settings: Settings, *, dry_run: bool = False) -> list[Resource]:
    """Make or mend the message queue of generation and its dead-letter queue; a dry run only tells."""
    from airunner.aws.connect import build_aws
    from airunner.generation.layout import generation_resources

    wanted = generation_resources(settings)
    clock = SystemClock()
    await _check_account(settings, clock)
    async with build_aws(settings, clock, clients=["sqs"]) as aws:
        from airunner.aws.provision import provision

        return await provision(aws, wanted, clock, dry_run=dry_run)


async def provision_fleet(
    settings: Settings, *, deletion_protection: bool = False, dry_run: bool = False
) -> list[Resource]:
    """Make or mend the queues and tables of a fleet, and mark its table; a dry run only tells.

    FailedPrecondition, before anything is made, where the table belongs to another environment.
    """
    clock = SystemClock()
    await _check_account(settings, clock)
    async with build_fleet_connection(settings, clients=["sqs", "dynamodb"]) as fleet:
        from airunner.aws.provision import provision
        from airunner.aws.table_meta import TableOwnership
        from airunner.fleet.aws.layout import fleet_resources, owned_fleet_table

        layout = replace(fleet.layout, deletion_protection=deletion_protection)
        ownership = TableOwnership(fleet.aws, owned_fleet_table(layout), layout.env)
        await ownership.refuse_others()
        made = await provision(fleet.aws, fleet_resources(layout), clock, dry_run=dry_run)
        if not dry_run:
            await ownership.ensure()
        return made


async def _check_account(settings: Settings, clock: Clock) -> None:
    """Refuse the credentials of another account than the settings name, if they name one."""
    from airunner.aws.connect import build_aws

    account_id = settings.store.aws.account_id
    if not account_id:
        return
    async with build_aws(settings, clock, clients=["sts"]) as aws:
        from airunner.aws.provision.account import check_account

        await check_account(aws, account_id)


def build_signer(settings: Settings) -> TokenSigner:
    """Return the signer of task tokens: with the keys that are set, or else with one that is made here.

    Where servers have no folder in common, a missing key is a ConfigError.
    """
    import secrets

    from airunner.config import ConfigError
    from airunner.domain.token import MIN_KEY_BYTES, TokenSigner
    from airunner.stores.registry import TokenKeys

    keys = [key.get_secret_value().encode() for key in settings.token_keys]
    if any(len(key) < MIN_KEY_BYTES for key in keys):
        raise ConfigError([f"token_keys: each must have at least {MIN_KEY_BYTES} bytes"])
    source = _store_kind(settings).token_keys
    if not keys and source is TokenKeys.MUST_BE_SET:
        raise ConfigError([
            f"token_keys: must be set with store.type {settings.store.type}, the same on all servers; "
            "set AIRUNNER_TOKEN_KEYS, for one to the output of: openssl rand -hex 32"
        ])  # fmt: skip
    if not keys:
        kept = source is TokenKeys.KEPT_IN_FOLDER
        keys = [_kept_token_key(settings.data_dir) if kept else secrets.token_bytes(32)]
    return TokenSigner(keys)


def _kept_token_key(directory: Path) -> bytes:
    """Return the key of a data folder; the file appears whole or not at all, whenever we are killed."""
    import secrets
    import tempfile

    from airunner.stores.sqlite.store import TOKEN_KEY

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / TOKEN_KEY
    if not path.exists():
        with tempfile.NamedTemporaryFile("w", dir=directory) as draft:
            draft.write(secrets.token_hex(32))
            draft.flush()
            os.fsync(draft.fileno())
            # Unlike a rename, it never replaces the key of a server that was quicker.
            with suppress(FileExistsError):
                os.link(draft.name, path)
    return bytes.fromhex(path.read_text().strip())
