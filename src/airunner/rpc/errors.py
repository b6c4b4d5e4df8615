"""Our errors as the library's, which puts them on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectrpc.code import Code
from connectrpc.errors import ConnectError
from protobuf.wkt import Any as AnyMessage

from airunner.codec.errors import to_wire

if TYPE_CHECKING:
    from airunner.domain.errors import AirunnerError

_TYPE_PREFIX = "type.googleapis.com/"


def to_connect(error: AirunnerError) -> ConnectError:
    """Return the library's error for one of ours."""
    wire = to_wire(error)
    # The library packs details with another protobuf runtime than ours, so these come packed.
    details = [AnyMessage(type_url=_TYPE_PREFIX + kind, value=value) for kind, value in wire.details]
    return ConnectError(Code(wire.code), wire.message, details)
