"""How many descriptors this process may have open, and how many those may that it starts for jobs."""

from __future__ import annotations

import resource
from typing import Final

MAX_DESCRIPTORS: Final = 65_536

# The soft limit that this process was started with, once it was raised.
_before: list[int] = []


def raise_descriptor_limit() -> int:
    """Raise the soft limit to the hard one, within reason; return what it is now. Harmless when repeated."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    _before.append(soft)
    return wanted


def descriptor_limit_for_jobs() -> int | None:
    """Return the soft limit that this process was started with; None if it still has it.

    Programs that know descriptors by a bitmap, or close every possible one, expect the usual small number.
    """
    return _before[0] if _before else None
