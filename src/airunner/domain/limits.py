"""Defaults and limits of the contract, and the checks that use them."""

from __future__ import annotations

import functools
import ipaddress
import re

from airunner.domain.errors import InvalidArgument

MESSAGE_BYTES = 4 * 1024 * 1024
DEFAULT_VISIBILITY_SECONDS = 300
MAX_VISIBILITY_SECONDS = 43_200
MAX_DEQUEUE_JOBS = 100
MAX_DEQUEUE_BYTES = 4 * 1024 * 1024
DEFAULT_DEQUEUE_WAIT_SECONDS = 5
MAX_DEQUEUE_WAIT_SECONDS = 20
MAX_MORE_QUEUES = 20
MAX_UPDATE_WAIT_SECONDS = 60
MAX_GET_WAIT_SECONDS = 60
DEFAULT_PAGE_SIZE = 20
MAX_PAGE_SIZE = 500
DEFAULT_OVERVIEW_SIZE = 100
MAX_PAGE = 1_000_000
MAX_DELAY_SECONDS = 30 * 24 * 3600
DEFAULT_MAX_ATTEMPTS = 3
MAX_ATTEMPTS = 100
MAX_BATCH_ENTRIES = 500
MAX_TIMEOUT_SECONDS = 30 * 24 * 3600
MAX_PARAMS_BYTES = 1024 * 1024
MAX_LISTED_TEXT = 4096
PAYLOAD_URL_SECONDS = 900
MAX_HANDLER_NAME = 128
MAX_DECLARED_HANDLERS = 1_000
MAX_DECLARED_BYTES = 64 * 1024
MAX_RESULT_OUTPUT_BYTES = 1024 * 1024
MAX_ERROR_TEXT_BYTES = 64 * 1024
MAX_BATCH_EVENTS = 50
MAX_EVENT_BYTES = 350 * 1024
MAX_SEQUENCE = 10**12 - 1
MAX_NAME_BYTES = 256
_REPLICA_ADDRESS = re.compile(
    r"https?://(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\])(?::[1-9][0-9]{0,4})?"
)
MIN_SECRET_BYTES = 6
# The year 9999: what a timestamp of the contract can hold.
MAX_INSTANT = 253_402_300_799_999

_CANONICAL_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


def check_queue(name: str, field: str = "queue") -> str:
    """Return the name of a queue if it is one."""
    if not _QUEUE_NAME.fullmatch(name):
        raise InvalidArgument(f"{field} must be 1 to 80 letters, digits, '-' and '_'")
    return name


def check_handler_name(name: str, field: str = "handler") -> str:
    """Return the name of a handler if it is one."""
    if not 1 <= len(name) <= MAX_HANDLER_NAME or not name.isprintable() or name != name.strip():
        raise InvalidArgument(
            f"{field} must be 1 to {MAX_HANDLER_NAME} printable characters, without spaces around them"
        )
    return name


def handler_key(name: str) -> str:
    """Return what names of handlers are compared by; empty for none, which is a command."""
    return name.casefold()


def check_uuid(text: str, field: str) -> str:
    """Return a UUID in its canonical spelling."""
    if _CANONICAL_UUID.fullmatch(text):
        return text
    import uuid  # late: nearly all are spelled so

    try:
        return str(uuid.UUID(text)) if len(text) in (32, 36) else _refuse_uuid(field)
    except ValueError:
        return _refuse_uuid(field)


def check_range(value: int, field: str, low: int, high: int) -> int:
    """Return a number if it is within its limits, both included."""
    if not low <= value <= high:
        raise InvalidArgument(f"{field} must be from {low} to {high}, not {value}")
    return value


def in_range_or_default(value: int, field: str, default: int, low: int, high: int) -> int:
    """Return the default for zero, else the number if it is within its limits."""
    return default if value == 0 else check_range(value, field, low, high)


def check_size(text: str | bytes, field: str, limit: int) -> None:
    """Refuse what is longer than `limit` bytes."""
    size = len(text) if isinstance(text, bytes) or text.isascii() else len(text.encode())
    if size > limit:
        raise InvalidArgument(f"{field} must have at most {limit} bytes, not {size}")


@functools.lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Return whether a host, given without its port, is certainly this machine; nothing is resolved.

    That is `localhost`, 127.0.0.0/8 and ::1. Only there may keys travel without TLS.
    """
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def is_replica_address(text: str) -> bool:
    """Return whether a text is the address of a server as others may call it: scheme, host and port alone."""
    return len(text) <= MAX_NAME_BYTES and _REPLICA_ADDRESS.fullmatch(text) is not None


def _refuse_uuid(field: str) -> str:
    raise InvalidArgument(f"{field} must be a UUID")
