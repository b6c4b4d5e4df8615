"""What a server serves, composed from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airunner.app.signers import build_signer
from airunner.app.stores import build_store

if TYPE_CHECKING:
    from airunner.config import Settings
    from airunner.domain.clock import Clock
    from airunner.domain.token import TokenSigner
    from airunner.fleet.aws.connection import FleetConnection
    from airunner.services.admission import AdmissionLimits
    from airunner.services.composition import Replica, Services
    from airunner.services.jobs import InstanceGate

_DAY_MS = 24 * 3600 * 1000


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
    from airunner.services.job_requests import JobRules
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


def add_fleet(fleet: FleetConnection, services: Services) -> None:
    """Let a server tell of a fleet, ask for its tasks, and serve its dead letters."""
    from airunner.config import FleetPart
    from airunner.fleet.dead_letters import FleetDeadLetters
    from airunner.fleet.office import FleetDesk

    services.fleet.attach(FleetDesk(fleet, services.clock))
    for part in (FleetPart.TERMINATION, FleetPart.HOUSEKEEPING):
        services.admin.add_dead_letters(part.value, FleetDeadLetters(fleet, part, services.clock))


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
