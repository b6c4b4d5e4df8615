"""JSON values to and from attribute values of DynamoDB."""

from __future__ import annotations

import base64
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from airunner.stores.aws.items import Value

MAX_DIGITS: Final = 38
"""The precision of a number in DynamoDB."""


def to_value(given: Any) -> Value:
    """Return a JSON value as an attribute value.

    ValueError for what DynamoDB would refuse or round: a number of more than 38 digits, an empty name.
    """
    match given:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": given}
        case str():
            return {"S": given}
        case int() if abs(given) < 10**MAX_DIGITS:
            return {"N": str(given)}
        case list():
            return {"L": [to_value(entry) for entry in given]}
        case dict() if "" not in given:
            return {"M": {name: to_value(entry) for name, entry in given.items()}}
        case _:
            raise ValueError("DynamoDB has no such value")


def from_value(value: Value) -> Any:
    """Return the JSON value of an attribute value.

    What no JSON of ours becomes is read as well, a newer version may have put it there: numbers with a
    fraction, sets as lists, bytes as base64.
    """
    ((kind, content),) = value.items()
    match kind:
        case "S" | "BOOL" | "SS":
            return content
        case "N":
            return _number(content)
        case "M":
            return {name: from_value(entry) for name, entry in content.items()}
        case "L":
            return [from_value(entry) for entry in content]
        case "NULL":
            return None
        case "B":
            return base64.b64encode(content).decode()
        case "NS":
            return [_number(entry) for entry in content]
        case "BS":
            return [base64.b64encode(entry).decode() for entry in content]
        case _:
            raise ValueError(f"no kind of value is called {kind}")


def _number(digits: str) -> int | Decimal:
    number = Decimal(digits)
    return int(number) if number == number.to_integral_value() else number
