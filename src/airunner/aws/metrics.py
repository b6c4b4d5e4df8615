"""What calls of AWS are counted as. Labels are names of operations and tables: few, and none a caller's."""

from __future__ import annotations

from typing import Any, Final

from airunner import telemetry

_READS: Final = frozenset({"BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems"})


def count_call(service: str, operation: str, outcome: str, seconds: float) -> None:
    """Count one try: `ok` for any answer, one that says no included; else throttled, timeout or error."""
    telemetry.aws_calls.add(1, service, operation, outcome)
    telemetry.aws_call_time.record(seconds, 1, (service, operation))
    if outcome == "throttled":
        telemetry.aws_throttles.add(1, service)


def count_retry(service: str) -> None:
    """Count a try that follows a failed one."""
    telemetry.aws_retries.add(1, service)


def count_refused_retry(service: str) -> None:
    """Count a call that was given up before its last try, since too many others had failed."""
    telemetry.aws_retries_refused.add(1, service)


def count_capacity(operation: str, consumed: dict[str, Any] | list[dict[str, Any]]) -> None:
    """Count what a reply says it took; a call that touches several tables has an entry for each."""
    kind = "read" if operation in _READS else "write"
    for entry in [consumed] if isinstance(consumed, dict) else consumed:
        telemetry.aws_consumed_capacity.add(entry.get("CapacityUnits", 0), entry["TableName"], kind)
