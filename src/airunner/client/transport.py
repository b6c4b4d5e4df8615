"""The ways to servers: never through a proxy to this machine, and not silently in the clear to others."""

from __future__ import annotations

import atexit
import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyqwest

from airunner.domain.limits import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable

_CONNECT_SECONDS = 5.0
_IDLE_CONNECTIONS = 64
_PARTING_SECONDS = 0.05
# A proxy that is for no host, by name or by address: without one, those of the environment would count.
_NO_PROXY = pyqwest.Proxy("http://127.0.0.1:9", no_proxy="*,0.0.0.0/0,::/0")


class Transports:
    """The transports to all servers of a client; they are made when they are first asked for.

    Those of the environment (HTTP_PROXY and the like) are the way to other machines. To loopback there is
    none: what is said there, keys and secrets included, stays on this machine.
    """

    def __init__(
        self,
        ca_file: str | Path | None,
        shared: pyqwest.Transport | None = None,
        *,
        direct: bool = False,
    ) -> None:
        """With a CA file, only what it signed is trusted. A shared transport serves all, and stays open.

        With `direct` there is no proxy on the way to any machine.
        """
        self._ca_file = ca_file
        self._shared = shared
        self._direct = direct
        self._made: dict[bool, pyqwest.HTTPTransport] = {}

    def to(self, address: str) -> pyqwest.Transport:
        """Return the way to an address."""
        if self._shared is not None:
            return self._shared
        direct = self._direct or _is_local(address)
        if direct not in self._made:
            self._made[direct] = _make_transport(self._ca_file, direct=direct)
        return self._made[direct]

    async def aclose(self) -> None:
        """Let go of all connections; a second time there is nothing to do."""
        made, self._made = self._made, {}
        for transport in made.values():
            await transport.__aexit__(None, None, None)


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


def _make_transport(ca_file: str | Path | None, *, direct: bool) -> pyqwest.HTTPTransport:
    _part_in_good_order()
    return pyqwest.HTTPTransport(
        tls_ca_cert=Path(ca_file).read_bytes() if ca_file else None,
        tls_include_system_certs=ca_file is None,
        proxy=_NO_PROXY if direct else None,
        connect_timeout=_CONNECT_SECONDS,
        pool_max_idle_per_host=_IDLE_CONNECTIONS,
        follow_redirects=False,
        enable_otel=False,
    )


@functools.cache
def _part_in_good_order() -> None:
    """Give the transport's native threads a moment before the interpreter goes away.

    One that comes back to Python after that aborts the whole process, before Python 3.13.
    """
    atexit.register(time.sleep, _PARTING_SECONDS)
