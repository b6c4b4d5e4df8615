"""A server with all that it serves, from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.app.exporters import build_export_loop, build_exporters
from airunner.app.fleet import fleet_companions, fleet_of_server
from airunner.app.services import add_fleet, build_services
from airunner.app.signers import build_signer
from airunner.app.workers import build_generation_worker, build_outbox_relay
from airunner.domain.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from airunner.config import Settings
    from airunner.generation.session_api.service import GenerationService
    from airunner.server.companions import Companion, CompanionKind
    from airunner.server.run import Server
    from airunner.services.composition import Services


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
    fleet = fleet_of_server(settings)
    services = build_services(settings, clock, signer, fleet)
    if fleet:
        add_fleet(fleet, services)
    companions += fleet_companions(settings, services, signer)
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


def build_generations(settings: Settings, services: Services) -> GenerationService | None:
    """Return the service of generations beside others, if it is among those that the settings name."""
    from airunner.config import ConfigError, ServiceName

    if ServiceName.GENERATIONS not in settings.services:
        return None
    if not settings.postgres.dsn_text:
        raise ConfigError(["services: generations needs postgres.dsn or DATABASE_URL"])
    from airunner.generation.layout import check_apart
    from airunner.generation.session_api.start import make_generations

    check_apart(settings)
    return make_generations(settings, services)


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
    builders: dict[str, Callable[[], Companion]] = {}
    if settings.outbox.start_relay:
        builders["outbox"] = lambda: build_outbox_relay(settings)
    if settings.generation.start_worker:
        builders["generation"] = lambda: build_generation_worker(settings)
    if not (settings.generation.queue_url or settings.outbox.queues or builders):
        return []
    from airunner.generation.layout import check_apart
    from airunner.server.companions import CompanionKind

    check_apart(settings)
    for build in builders.values():
        build()
    return [CompanionKind(name=name, build=build) for name, build in builders.items()]
