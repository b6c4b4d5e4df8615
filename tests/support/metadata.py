"""The metadata endpoint of an instance of EC2, on loopback."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

NOTICE = '{"action": "terminate", "time": "2026-11-16T10:02:00Z"}'
_TTL = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN = "X-aws-ec2-metadata-token"


class MetadataEndpoint:
    """Serves from `with` to its end. `status` other than 200 answers everything; `hangs` answers nothing."""

    def __init__(
        self, instance_id: str = "i-0123456789abcdef0", *, status: int = 200, hangs: bool = False
    ) -> None:
        self.instance_id = instance_id
        self.status = status
        self.notice = ""
        self.calls: list[str] = []
        self._token = 0
        self._hangs = hangs
        self._over = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        # How often it looks whether it shall end.
        options = {"poll_interval": 0.01}
        threading.Thread(target=self._server.serve_forever, kwargs=options, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def forget_tokens(self) -> None:
        """Take no token any more that was given until now."""
        self._token += 1

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        """Return the status and the body of an answer."""
        self.calls.append(f"{method} {path}")
        if self._hangs:
            self._over.wait()
        if self.status != 200:
            return self.status, ""
        if (method, path) == ("PUT", "/latest/api/token"):
            return (200, str(self._token)) if headers.get(_TTL.lower()) else (400, "")
        if headers.get(_TOKEN.lower()) != str(self._token):
            return 401, ""
        entries = {"instance-id": self.instance_id, "spot/instance-action": self.notice}
        name = path.removeprefix("/latest/meta-data/")
        if name == "instance-id" or entries.get(name):
            return 200, entries[name]
        return 404, ""

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer("GET")

            def do_PUT(self) -> None:
                self._answer("PUT")

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def _answer(self, method: str) -> None:
                headers = {name.lower(): text for name, text in self.headers.items()}
                status, body = endpoint.answer(method, self.path, headers)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

        return Handler
