"""The limits of CloudWatch on what it is told; pure functions of a call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tests.doubles.aws.calls import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.doubles.aws.calls import Call

DATA: Final = 1000
VALUES: Final = 150
DIMENSIONS: Final = 30
NAME_LENGTH: Final = 255
DIMENSION_LENGTH: Final = 1024
REQUEST_BYTES: Final = 1 << 20
LARGEST: Final = 2.0**360
UNITS: Final = frozenset({"Seconds", "Bytes", "Count", "Percent", "None"})
"""Those of its units that we use."""


def cloudwatch_refusal(call: Call) -> Refusal | None:
    """Return why CloudWatch refuses a call."""
    if call.operation != "PutMetricData":
        return None
    data = call.body.get("MetricData", ())
    namespace = call.body["Namespace"]
    if not 1 <= len(namespace) <= NAME_LENGTH or namespace.startswith((":", "AWS/")):
        return _invalid("The namespace must not begin with AWS/ or with a colon.")
    if len(call.request.body) > REQUEST_BYTES:
        return Refusal(code="RequestEntityTooLarge", message="The request is too large.", status=413)
    if not 1 <= len(data) <= DATA:
        return _invalid(f"The collection MetricData must have from 1 to {DATA} members.")
    return next((refusal for datum in data if (refusal := _datum_refusal(datum))), None)


def _datum_refusal(datum: Mapping[str, Any]) -> Refusal | None:
    if not 1 <= len(datum["MetricName"]) <= NAME_LENGTH:
        return _invalid("MetricName is too long or empty.")
    if datum.get("Unit", "None") not in UNITS:
        return _invalid(f"The unit {datum['Unit']} is unknown.")
    return _values_refusal(datum) or _dimensions_refusal(datum.get("Dimensions", ()))


def _values_refusal(datum: Mapping[str, Any]) -> Refusal | None:
    values = datum.get("Values", ())
    if ("Value" in datum) == bool(values):
        message = "One of Value and Values must be given, and not both."
        return Refusal(code="InvalidParameterCombination", message=message)
    counts = datum.get("Counts", [1.0] * len(values))
    if len(values) > VALUES or len(counts) != len(values):
        return _invalid(f"There may be {VALUES} values, and as many counts as values.")
    numbers = [*values, *counts, *([datum["Value"]] if "Value" in datum else [])]
    if not all(_is_number(number) for number in numbers):
        return _invalid("A value is no number, or too large.")
    return None


def _dimensions_refusal(dimensions: Any) -> Refusal | None:
    if len(dimensions) > DIMENSIONS:
        return _invalid(f"There may be {DIMENSIONS} dimensions.")
    for dimension in dimensions:
        name, value = dimension["Name"], dimension["Value"]
        if not name or name.startswith(":") or not value.strip() or not (name + value).isascii():
            return _invalid("A dimension has a name and a value of ASCII characters, and neither is empty.")
        if len(name) > NAME_LENGTH or len(value) > DIMENSION_LENGTH:
            return _invalid("A dimension is too long.")
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) <= LARGEST


def _invalid(message: str) -> Refusal:
    return Refusal(code="InvalidParameterValue", message=message)
