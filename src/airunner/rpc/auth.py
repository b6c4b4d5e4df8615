"""Who may call what: API keys, scopes, default deny."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, TypeGuard

from airunner.domain.errors import InvalidArgument, PermissionDenied, Unauthenticated
from airunner.services.caller import Caller, current_caller
from airunner.stores.records import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airunner.domain.clock import Clock
    from airunner.stores.keys import KeyStore

_PREFIX = "airk"
# How long a key is trusted without asking the store again, so that a revocation takes this long at most.
_TRUSTED_MS = 1_000
_MAX_KNOWN = 1_000


class Scope(StrEnum):
    """What a key may be allowed to do. `admin` includes everything."""

    SUBMIT = "jobs:submit"
    READ = "jobs:read"
    CANCEL = "jobs:cancel"
    WORKER = "worker"
    ADMIN = "admin"


# Every method has its rule; one that is missing here is denied, and a test fails. Those of generations are
# plain routes.
METHOD_SCOPES: dict[str, Scope] = {
    "EnqueueJob": Scope.SUBMIT,
    "EnqueueJobs": Scope.SUBMIT,
    "RetryJob": Scope.SUBMIT,
    "DequeueJob": Scope.WORKER,
    "DequeueJobs": Scope.WORKER,
    "UpdateJob": Scope.WORKER,
    "CompleteJob": Scope.WORKER,
    "CompleteJobs": Scope.WORKER,
    "ReleaseJob": Scope.WORKER,
    "PublishJobEvents": Scope.WORKER,
    "PublishJobEventBatch": Scope.WORKER,
    "GetJob": Scope.READ,
    "ListJobs": Scope.READ,
    "ListQueues": Scope.READ,
    "ListWorkers": Scope.READ,
    "StreamJobEvents": Scope.READ,
    "StreamJobEventBatches": Scope.READ,
    "CancelJob": Scope.CANCEL,
    "StartGeneration": Scope.SUBMIT,
    "GetGeneration": Scope.READ,
    "ListGenerations": Scope.READ,
    "StreamGeneration": Scope.READ,
    "StreamGenerations": Scope.READ,
    "PauseQueue": Scope.ADMIN,
    "ResumeQueue": Scope.ADMIN,
    "ListDeadLetters": Scope.ADMIN,
    "RedriveDeadLetters": Scope.ADMIN,
    "PurgeDeadLetters": Scope.ADMIN,
    "ListSettings": Scope.ADMIN,
    "SetSetting": Scope.ADMIN,
    "UnsetSetting": Scope.ADMIN,
    "ListHousekeepingRuns": Scope.ADMIN,
    "GetPoolReport": Scope.ADMIN,
    "RunHousekeeping": Scope.ADMIN,
}


@dataclass(frozen=True, slots=True)
class MintedKey:
    """A new key: what the store keeps, and the text that is shown once."""

    key: ApiKey
    text: str


def mint_key(name: str, scopes: Iterable[str], queues: Iterable[str], now: int) -> MintedKey:
    """Make a key for a principal."""
    wanted = frozenset(scopes)
    unknown = wanted - set(Scope)
    if unknown or not wanted:
        raise InvalidArgument(f"scopes must be one or more of {', '.join(Scope)}")
    if not name or len(name) > 128 or not name.isprintable():
        raise InvalidArgument("a key's name must be 1 to 128 printable characters")
    key_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
    key = ApiKey(
        key_id=key_id,
        name=name,
        secret_hash=_hash(secret),
        scopes=wanted,
        queues=frozenset(queues),
        created_at=now,
    )
    return MintedKey(key, f"{_PREFIX}_{key_id}_{secret}")


class Authenticator:
    """Finds who a call comes from. A key is looked up in the store at most once a second."""

    def __init__(self, keys: KeyStore, clock: Clock) -> None:
        self._keys = keys
        self._clock = clock
        self._known: dict[str, tuple[int, ApiKey | None]] = {}

    async def authenticate(self, authorization: str) -> ApiKey:
        """Return the key of an Authorization header, or refuse it; why stays untold."""
        key_id, secret = _split(authorization)
        key = await self._find(key_id) if secret else None
        if not _is_good(key, secret):
            raise Unauthenticated
        return key

    async def check_again(self, authorization: str) -> None:
        """Refuse a key that was good and has been revoked; while it cannot be looked up it stays good."""
        try:
            await self.authenticate(authorization)
        except Unauthenticated:
            raise
        except Exception:  # noqa: BLE001  the call was let in, and the next one meets the trouble
            return

    def recognizes(self, authorization: str) -> bool:
        """Return whether an Authorization header holds a key that was good when it was last looked up."""
        key_id, secret = _split(authorization)
        _, key = self._known.get(key_id, (0, None))
        return _is_good(key, secret)

    async def _find(self, key_id: str) -> ApiKey | None:
        now = self._clock.monotonic()
        known = self._known.get(key_id)
        if known and now - known[0] < _TRUSTED_MS:
            return known[1]
        key = await self._keys.find_key(key_id)
        # What is used stays: each look-up moves its key to the end of those that are forgotten first.
        self._known.pop(key_id, None)
        while len(self._known) >= _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[key_id] = (now, key)
        return key


async def admit(authenticator: Authenticator, authorization: str, method: str) -> None:
    """Make the caller of a method known, or refuse it."""
    key = await authenticator.authenticate(authorization)
    check_scope(key, method)
    recheck = partial(authenticator.check_again, authorization)
    current_caller.set(Caller(principal=key.name, queues=key.queues, recheck=recheck))


def check_scope(key: ApiKey, method: str) -> None:
    """Refuse a method that the key's scopes do not allow."""
    needed = METHOD_SCOPES.get(method)
    if needed is None or not key.scopes & {needed, Scope.ADMIN}:
        raise PermissionDenied(f"this API key does not have the scope {needed or 'for this method'}")


def _split(authorization: str) -> tuple[str, str]:
    """Return id and secret of the key in an Authorization header; no secret if there is no key."""
    scheme, _, text = authorization.partition(" ")
    prefix, _, rest = text.strip().partition("_")
    key_id, _, secret = rest.partition("_")
    return (key_id, secret) if scheme.lower() == "bearer" and prefix == _PREFIX else ("", "")


def _is_good(key: ApiKey | None, secret: str) -> TypeGuard[ApiKey]:
    if key is None or not secret or key.revoked_at:
        return False
    return hmac.compare_digest(key.secret_hash, _hash(secret))


def _hash(secret: str) -> bytes:
    # The secret has 256 random bits, so a slow hash would add nothing.
    return hashlib.sha256(secret.encode()).digest()
