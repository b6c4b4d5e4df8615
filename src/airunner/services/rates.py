"""Token buckets: how often somebody may call, and how many wrong keys may come from one address."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from airunner.domain.clock import Clock

MAX_TRACKED: Final = 10_000
_IPV6_NETWORK_BITS: Final = 64


class TokenBucket:
    """Holds up to `burst` tokens, and gains `rate` of them a second. It begins full."""

    __slots__ = ("_burst", "_rate", "_tokens", "_updated_at")

    def __init__(self, rate: float, burst: float, now: int) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._updated_at = now

    def take(self, now: int) -> float:
        """Take a token; return 0, or the seconds until there is one, when none was taken."""
        missing = self.missing(now)
        if not missing:
            self._tokens -= 1
        return missing

    def missing(self, now: int) -> float:
        """Return the seconds until there is a token; 0 if there is one."""
        elapsed = now - self._updated_at
        self._updated_at = now
        if elapsed > 0:  # a clock that was set back neither gives nor takes
            self._tokens = min(self._burst, self._tokens + elapsed * self._rate / 1000)
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self._rate


class Buckets:
    """One bucket for each of those who call, of at most 10,000; who came first is forgotten first."""

    def __init__(self, rate: float, burst: float, clock: Clock) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, TokenBucket] = {}

    @property
    def tracked(self) -> int:
        """How many have a bucket."""
        return len(self._buckets)

    def take(self, key: str) -> float:
        """Take a token of somebody's; return 0, or the seconds until there is one."""
        now = self._clock.monotonic()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._add(key, now)
        return bucket.take(now)

    def missing(self, key: str) -> float:
        """Return the seconds until somebody has a token; 0 if there is one."""
        bucket = self._buckets.get(key)
        return bucket.missing(self._clock.monotonic()) if bucket else 0.0

    def _add(self, key: str, now: int) -> TokenBucket:
        while len(self._buckets) >= MAX_TRACKED:
            del self._buckets[next(iter(self._buckets))]
        bucket = self._buckets[key] = TokenBucket(self._rate, self._burst, now)
        return bucket


@lru_cache(maxsize=1_024)
def network_of(address: str) -> str:
    """Return what counts as one caller: an IPv4 address, or the /64 that an IPv6 address lies in."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ip.ipv4_mapped or ipaddress.ip_network((ip, _IPV6_NETWORK_BITS), strict=False))
    return str(ip)
