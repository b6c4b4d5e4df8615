"""The ways to servers: never through a proxy to this machine, and not silently in the clear to others."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airunner.domain.limits import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from airunner.client.http.base import HttpTransport


class Transports:
    """The transports to all servers of a client; they are made when they are first asked for.

    Those of the environment (HTTP_PROXY and the like) are the way to other machines. To loopback there is
    none: what is said there, keys and secrets included, stays on this machine.
    """

    def __init__(
        self, ca_file: str | Path | None, shared: HttpTransport | None = None, *, direct: bool = False
    ) -> None:
        """With a CA file, only what it signed is trusted. A shared transport serves all, and stays open.

        With `direct` there is no proxy on the way to any machine.
        """
        self._ca_file = ca_file
        self._shared = shared
        self._direct = direct
        self._made: dict[bool, HttpTransport] = {}

    def to(self, address: str) -> HttpTransport:
        """Return the way to an address."""
        if self._shared is not None:
            return self._shared
        proxied = not self._direct and bool(proxy_to(address))
        if proxied not in self._made:
            self._made[proxied] = _make_transport(self._ca_file, proxied=proxied)
        return self._made[proxied]

    async def aclose(self) -> None:
        """Let go of all connections; a second time there is nothing to do."""
        made, self._made = self._made, {}
        for transport in made.values():
            await transport.aclose()


def proxy_to(address: str) -> str:
    """Return the proxy on the way to an address, by the rules of the standard library; empty for none.

    These are HTTP_PROXY, HTTPS_PROXY and ALL_PROXY, but for the hosts of NO_PROXY. There is none to loopback.
    """
    if _is_local(address):
        return ""
    # Imported here, since it brings a whole client, which nobody needs to reach this machine.
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(address)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all", "")
    return "" if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]) else proxy


def warn_of_plaintext(addresses: Iterable[str]) -> None:
    """Say, once for each address, that a key would travel there in the clear."""
    for address in addresses:
        if urlsplit(address).scheme == "http" and not _is_local(address):
            _warn_once(address)


@functools.cache
def _warn_once(address: str) -> None:
    # Imported here, since hardly any client has to say anything.
    from airunner.telemetry.logs import get_logger

    get_logger("airunner.client").warning(
        "client.plaintext", server=address, hint="the API key is sent without TLS: use an https:// address"
    )


def _is_local(address: str) -> bool:
    return is_loopback(urlsplit(address).hostname or "")


def _make_transport(ca_file: str | Path | None, *, proxied: bool) -> HttpTransport:
    if proxied:
        # Imported here, since hardly any client has a proxy to go through.
        from airunner.client.http.library import LibraryTransport

        return LibraryTransport(ca_file)
    from airunner.client.http.pool import ConnectionPool

    return ConnectionPool(ca_file)
