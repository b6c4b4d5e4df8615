"""What the OTEL_ variables ask for; the SDK reads the details itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_log = get_logger("airunner.telemetry")

_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_HTTP: Final = "http/protobuf"


def sdk_is_disabled(environment: Mapping[str, str]) -> bool:
    """Return whether there shall be no metrics at all."""
    return _first(environment, ["OTEL_SDK_DISABLED"]).lower() == "true"


def otlp_is_wanted(environment: Mapping[str, str]) -> bool:
    """Return whether to send metrics to a receiver: one is named, and its protocol is supported."""
    exporters = {name.strip() for name in environment.get("OTEL_METRICS_EXPORTER", "").split(",")}
    if sdk_is_disabled(environment) or not exporters & {"", "otlp"} or not _first(environment, _ENDPOINTS):
        return False
    protocol = _first(environment, _PROTOCOLS) or _HTTP
    if protocol != _HTTP:
        _log.warning("metrics.otlp_protocol_unknown", protocol=protocol, known=_HTTP)
    return protocol == _HTTP


def _first(environment: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the first of these variables that is set to something."""
    return next((text for name in names if (text := environment.get(name, "").strip())), "")
