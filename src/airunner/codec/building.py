"""Building messages: what does not fit into one is refused, and what is encoded already is put together.

An encoded message is the encodings of its fields, one behind the other and in any order. To write what stands
before each costs less than to fill an object, copy it into another, and encode all of it again.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from airunner.domain.errors import InvalidArgument
from airunner.domain.record import record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

P = ParamSpec("P")
M = TypeVar("M")

_LENGTH_DELIMITED: Final = 2
_CONTINUED: Final = 0x80


def refusing(build: Callable[P, M]) -> Callable[P, M]:
    """Let what does not fit into a message be refused as the server would refuse it."""

    @functools.wraps(build)
    def built(*args: P.args, **kwargs: P.kwargs) -> M:
        try:
            return build(*args, **kwargs)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgument(str(error)) from None

    return built


@record
class EncodedMessage:
    """The bytes of a message; it is sent like any other."""

    raw: bytes

    def SerializeToString(self) -> bytes:  # noqa: N802  as protobuf calls it
        """Return the bytes."""
        return self.raw

    def ByteSize(self) -> int:  # noqa: N802  as protobuf calls it
        """Return how many there are."""
        return len(self.raw)


@functools.lru_cache(maxsize=4096)
def before(number: int, size: int) -> bytes:
    """Return what stands before the value of a field: its number, and how many bytes the value has.

    The value is a text, bytes, or a message that is encoded. Nobody can tell an empty one from none.
    """
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(size)


def repeated(number: int, values: Sequence[bytes]) -> bytes:
    """Return the encoding of a repeated field with these values."""
    return b"".join([part for value in values for part in (before(number, len(value)), value)])


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number >= _CONTINUED:
        encoded.append(number & (_CONTINUED - 1) | _CONTINUED)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
