"""The KeyStore: where API keys are kept, beside the jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.stores.records import ApiKey


class KeyStore(Protocol):
    """Where API keys are kept."""

    async def add_key(self, key: ApiKey) -> None:
        """Keep a new key."""

    async def find_key(self, key_id: str) -> ApiKey | None:
        """Return a key, revoked or not."""

    async def list_keys(self) -> Sequence[ApiKey]:
        """Return all keys, oldest first."""

    async def revoke_key(self, key_id: str, now: int) -> bool:
        """Revoke a key; return whether it exists. A revoked one stays as it is."""
