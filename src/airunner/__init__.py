"""airunner: run long jobs anywhere, watch every line of them live, and never lose one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airunner.client import AsyncClient, Client, EventBuffer

__version__ = "0.1.0"
__all__ = ["AsyncClient", "Client", "EventBuffer", "__version__"]


def __getattr__(name: str) -> Any:
    """Import the client when it is first used: the rest of airunner starts without it."""
    if name in __all__:
        from airunner import client

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
