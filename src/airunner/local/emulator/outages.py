"""Services of the emulated AWS that are away for a while, as a test or a curious person wants it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from moto.sqs.models import Queue, sqs_backends
from werkzeug.exceptions import ServiceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

EVERYTHING: Final = "*"
"""All services."""

# Every request is signed for its service, in a header or, where it is pre-signed, in its address.
_SIGNED_FOR: Final = re.compile(r"Credential=[^,&\s]*(?:/|%2F)([a-z0-9-]+)(?:/|%2F)aws4_request")


class Outages:
    """Answers calls of services that are away: with 503, or by breaking the connection.

    What such a service was asked is not performed. Long polls that are parked end like the others, and take
    no message any more.
    """

    def __init__(self) -> None:
        self._away: frozenset[str] = frozenset()
        self._breaks_connections = False

    def install(self) -> None:
        """Let parked receives learn of an outage of SQS."""

        def wait_for_messages(queue: Any, timeout: float) -> None:
            with queue._messages_lock:  # noqa: SLF001  moto waits on it too
                queue._messages_lock.wait_for(  # noqa: SLF001
                    lambda: queue.messages or self._is_away("sqs"), timeout=timeout
                )
            if self._is_away("sqs"):
                raise ServiceUnavailable

        type.__setattr__(Queue, "wait_for_messages", wait_for_messages)

    def set(self, services: Collection[str], *, breaks_connections: bool = False) -> None:
        """Let these services be away from now on, by the names that requests are signed for, and no others.

        "dynamodb", "sqs" and "s3" are some; EVERYTHING is all of them.
        """
        self._breaks_connections = breaks_connections
        self._away = frozenset(services)
        for queue in _queues():
            with queue._messages_lock:  # noqa: SLF001  parked receives wait on it
                queue._messages_lock.notify_all()  # noqa: SLF001

    def concern(self, environ: dict[str, Any]) -> bool:
        """Return whether the service that a request is for is away."""
        if not self._away:
            return False
        signed = f"{environ.get('HTTP_AUTHORIZATION', '')} {environ.get('QUERY_STRING', '')}"
        found = _SIGNED_FOR.search(signed)
        return self._is_away(found[1] if found else "")

    def answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer in place of a service; raises ConnectionResetError where connections break."""
        if self._breaks_connections:
            raise ConnectionResetError
        code = "ServiceUnavailable"
        body = f"<Error><Code>{code}</Code></Error>".encode()
        if environ.get("HTTP_X_AMZ_TARGET"):
            body = json.dumps({"__type": code, "message": "The service is away."}).encode()
        start_response("503 Service Unavailable", [("Content-Length", str(len(body)))])
        return [body]

    def _is_away(self, service: str) -> bool:
        return service in self._away or EVERYTHING in self._away


def _queues() -> list[Any]:
    regions = [region for account in list(sqs_backends.values()) for region in list(account.values())]
    return [queue for region in regions for queue in list(region.queues.values())]
