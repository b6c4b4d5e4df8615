"""What a job is and how it may change: pure values and rules, standard library only, no I/O.

Beside them, how a package imports its names late, which the outermost one does too.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def import_late(package: str, name: str, homes: Mapping[str, Collection[str]]) -> Any:
    """Return what a name of a package stands for; AttributeError if none of its modules is its home."""
    home = next((module for module, names in homes.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
