"""Instants and durations as people and scripts read and write them."""

from __future__ import annotations

from datetime import UTC, datetime

from airunner.domain.errors import InvalidArgument


def to_iso(instant: int) -> str:
    """Return ISO 8601 in UTC with milliseconds; empty for no instant."""
    if not instant:
        return ""
    at = datetime.fromtimestamp(instant // 1000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{instant % 1000:03}Z"


def parse_instant(text: str, field: str) -> int:
    """Return the instant of a text: Unix milliseconds, or ISO 8601, local time if it names no zone.

    The InvalidArgument for any other text names the `field`.
    """
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{field} must be ISO 8601 or Unix milliseconds, not {text!r}") from None


def format_duration(milliseconds: int) -> str:
    """Return a duration as people say it, such as `3 min 05 s`; a negative one is none."""
    seconds = max(0, milliseconds) / 1000
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"
