"""Metrics as a scraper sees them, and what an instrument counted while a test looked."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from prometheus_client.parser import text_string_to_metric_families

from airunner.telemetry.instruments import Counter, Gauge, Histogram

LIMIT_SECONDS = 10


class Scrape:
    """What /metrics said at one moment."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = list(text_string_to_metric_families(text))
        self.samples = [sample for family in self.families for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """Return the one sample of this name and these labels; 0 if there is none, as for a fresh counter."""
        found = [
            sample.value
            for sample in self.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) <= 1, found
        return found[0] if found else 0

    def label_values(self, name: str, label: str) -> set[str]:
        return {sample.labels[label] for sample in self.samples if sample.name == name}


def scrape(url: str) -> Scrape:
    return Scrape(fetch(f"{url}/metrics"))


def health(url: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fetch(f"{url}/healthz"))
    return found


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=LIMIT_SECONDS) as answer:  # noqa: S310  loopback
        text: str = answer.read().decode()
    return text


class Change:
    """What instruments, which are shared by all tests of a process, counted since this was made."""

    def __init__(self, instrument: Counter | Histogram) -> None:
        self._instrument = instrument
        self._before = self._read()

    def __call__(self, *values: str) -> float:
        """Return the difference under these values of the labels; of a spread, the number of values."""
        return self._read().get(values, 0) - self._before.get(values, 0)

    def _read(self) -> dict[tuple[str, ...], float]:
        if isinstance(self._instrument, Counter):
            return dict(self._instrument.read())
        return {values: sum(reading.bucket_counts) for values, reading in self._instrument.read_all().items()}


def gauge_value(instrument: Gauge, *values: str) -> float:
    return instrument.read().get(values, 0)


class Receiver:
    """What an OTLP receiver got."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.requests: list[ExportMetricsServiceRequest] = []
        self.calls: list[str] = []

    def services(self) -> set[str]:
        return {
            attribute.value.string_value
            for request in self.requests
            for resource in request.resource_metrics
            for attribute in resource.resource.attributes
            if attribute.key == "service.name"
        }

    def last(self, name: str) -> Metric:
        """Return a metric as the last request told it."""
        found = [
            metric
            for resource in self.requests[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        assert len(found) == 1, f"{name} came {len(found)} times"
        return found[0]


@contextmanager
def receiving(*, answers: bool = True) -> Iterator[Receiver]:
    """A real OTLP receiver on loopback; one that does not answer keeps its callers waiting."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.calls.append(self.path)
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.requests.append(ExportMetricsServiceRequest.FromString(body))
            if not answers:
                over.wait()
                return
            answer = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the base's
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = Receiver(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        over.set()
        server.shutdown()
        thread.join()
        server.server_close()
