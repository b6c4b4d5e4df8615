"""What CloudWatch was told, as an emulator keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from airunner.aws.calls import Aws
from airunner.aws.cloudwatch import CloudWatchExporter
from airunner.domain.retry import RetryPolicy
from airunner.telemetry.fleet_metrics import CLOUDWATCH_NAMES
from airunner.telemetry.instruments import ForeignName, Instrument
from airunner.testing.clock import ManualClock
from tests.support.aws import client
from tests.support.aws_stores import options_of


class Watch:
    """An exporter, and what CloudWatch was told."""

    def __init__(
        self,
        url: str,
        namespace: str,
        *instruments: Instrument,
        names: Mapping[Instrument, ForeignName] | None = None,
        at_most_once: bool = False,
    ) -> None:
        self.clock = ManualClock()
        self.namespace = namespace
        self._url = url
        options = replace(options_of(url), clients=("cloudwatch",), attempts=1)
        self.exporter = CloudWatchExporter(
            Aws(options, policy=RetryPolicy(attempts=1)),
            namespace,
            instruments,
            self.clock,
            names=names,
            at_most_once=at_most_once,
        )

    async def told(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """Return the sums and numbers of samples of a series, by ten seconds."""
        async with self._client() as opened:
            answer = await opened.get_metric_statistics(
                Namespace=self.namespace,
                MetricName=name,
                Dimensions=[{"Name": label, "Value": value} for label, value in labels.items()],
                StartTime=datetime.fromtimestamp(1_699_999_980, UTC),
                EndTime=datetime.fromtimestamp(1_700_003_580, UTC),
                Period=10,
                Statistics=["Sum", "SampleCount"],
            )
        points = sorted(answer["Datapoints"], key=lambda point: point["Timestamp"])
        return [(point["Sum"], point["SampleCount"]) for point in points]

    async def labels(self, name: str) -> set[tuple[tuple[str, str], ...]]:
        """Return the dimensions of all series of a metric."""
        async with self._client() as opened:
            answer = await opened.list_metrics(Namespace=self.namespace, MetricName=name)
        return {
            tuple((entry["Name"], entry["Value"]) for entry in metric["Dimensions"])
            for metric in answer["Metrics"]
        }

    def _client(self) -> AbstractAsyncContextManager[Any]:
        return client("cloudwatch", self._url)


def watch_of_fleet(url: str, namespace: str) -> Watch:
    """Return an exporter of what a fleet counts, as its processors have it."""
    return Watch(url, namespace, *CLOUDWATCH_NAMES, names=CLOUDWATCH_NAMES, at_most_once=True)
