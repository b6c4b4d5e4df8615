"""What a browser, or an application, asks of a server: is it well, start this, and what became of it."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, Self

from airunner.client.http.base import Target
from airunner.client.transport import Transports, warn_of_plaintext
from airunner.domain.errors import DeadlineExceeded, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CALL_SECONDS: Final = 10.0
_BROKEN: Final = (Unavailable, DeadlineExceeded)
_PATH: Final = "/v1/generations"
_OK: Final = 200
_ACCEPTED: Final = 202
_ADVICE: Final = {
    401: "the server does not know this API key: see AIRUNNER_API_KEY",
    403: "the API key needs the scopes jobs:submit and jobs:read, and the queue generation",
    404: "the server does not offer generations: start it with --services jobs,events,generations",
    503: "the server cannot reach its database, or is stuck",
}


class ServerTrouble(Exception):
    """A call that did not succeed; the text says why, and what to look at."""


class ServerCalls:
    """Calls of one server, each with a deadline; an async context."""

    def __init__(self, address: str, api_key: str, ca_file: Path | None) -> None:
        self._address = address.rstrip("/")
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._transports = Transports(ca_file)
        if api_key:
            warn_of_plaintext([address])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transports.aclose()

    async def check_health(self) -> None:
        """Return if /healthz is ok."""
        status, body = await self._call("GET", "/healthz")
        if status != _OK:
            loops = body.get("loops")
            stuck = f", stuck: {', '.join(map(str, loops))}" if isinstance(loops, list) else ""
            raise ServerTrouble(f"{self._address}/healthz answers {status}{stuck}: see the server's log")

    async def start(self, name: str, payload: object, request_id: str) -> None:
        """Start a session of this id. May be repeated."""
        wanted = {"name": name, "payload": payload, "request_id": request_id}
        status, body = await self._call("POST", _PATH, json.dumps(wanted).encode())
        if status != _ACCEPTED:
            raise ServerTrouble(_refusal(f"POST {_PATH}", status, body))

    async def follow(self, session_id: str, on_event: Callable[[str], None]) -> None:
        """Give `on_event` the name of each message of a session's stream, as it comes; return after `end`.

        Who calls has the deadline: a stream may be silent for long.
        """
        path = f"{_PATH}/{session_id}/events"
        headers = {**self._headers, "accept": "text/event-stream"}
        try:
            target = Target(self._address, path, headers, "GET")
            async with aclosing(await self._transports.to(self._address).open(target)) as answer:
                if answer.status != _OK:
                    raise ServerTrouble(_refusal(f"GET {path}", answer.status, {}))
                text = ""
                while piece := await answer.read():
                    text += piece.decode(errors="replace")
                    *lines, text = text.split("\n")
                    for line in lines:
                        if line.startswith("event: "):
                            on_event(line.removeprefix("event: "))
                        if line == "event: end":
                            return
        except _BROKEN as error:
            raise ServerTrouble(f"the stream of the session broke: {type(error).__name__}") from error
        raise ServerTrouble("the stream of the session was cut off before its end: is a proxy in between?")

    async def _call(self, method: str, path: str, content: bytes = b"") -> tuple[int, dict[str, object]]:
        headers = {**self._headers, **({"content-type": "application/json"} if content else {})}
        try:
            target = Target(self._address, path, headers, method)
            transport = self._transports.to(self._address)
            answer = await transport.send(target, content, timeout_ms=int(CALL_SECONDS * 1000))
        except _BROKEN as error:
            raise ServerTrouble(
                f"{self._address} does not answer ({type(error).__name__}): is the server running there? "
                "See INTEGRATION_BASE_URL, or --server"
            ) from error
        return answer.status, _object_of(answer.body)


def _object_of(content: bytes) -> dict[str, object]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _refusal(call: str, status: int, body: dict[str, object]) -> str:
    told = body.get("message")
    text = f", {told}" if isinstance(told, str) and told else ""
    advice = f"; {_ADVICE[status]}" if status in _ADVICE else ""
    return f"{call} answers {status}{text}{advice}"
