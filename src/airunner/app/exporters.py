"""What sends metrics to CloudWatch, from settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airunner.aws.cloudwatch import CloudWatchExporter
    from airunner.config import Settings
    from airunner.domain.clock import Clock
    from airunner.services.periodic import Periodic

_EXPORT_SECONDS = 60.0
_FLEET_EXPORT = "cloudwatch.fleet"


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
