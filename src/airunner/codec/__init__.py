"""Everything that knows protobuf: messages of the wire and bytes of stores, to and from what we work with.

Modules that few callers need are imported when they are first used, as attributes of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from airunner.codec import answers, dead_letters, fleet, requests, settings

__all__ = ["answers", "dead_letters", "fleet", "requests", "settings"]

# Hidden from type checkers, which would take every name for one that exists.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import one of these modules; from then on it is an attribute like any other."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return import_module(f"{__name__}.{name}")
