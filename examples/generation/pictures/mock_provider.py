"""A provider of pictures to try things out with: a real HTTP server that paints, refuses and stumbles.

    python -m pictures.mock_provider --port 8001

What it does besides painting is up to words in the prompt: [refused] is never painted, [busy] is refused the
first time and painted the second, [slow] takes 8 seconds, [broken] fails each time.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from pictures import painting

SLOW_SECONDS: Final = 8
POLICY: Final = {"code": "content_policy", "message": "the provider does not paint this"}


class Ledger:
    """What was asked for and painted; a key is painted, and paid for, once."""

    def __init__(self) -> None:
        self.requests = 0
        self.pictures: dict[str, bytes] = {}
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def is_first(self, key: str) -> bool:
        """Count a request; return whether it is the first with its key."""
        with self._lock:
            self.requests += 1
            is_first = key not in self._seen
            self._seen.add(key)
            return is_first

    def picture(self, key: str, prompt: str) -> bytes:
        """Return the picture of a key, painted now or before."""
        with self._lock:
            if key not in self.pictures:
                self.pictures[key] = painting.paint(prompt)
            return self.pictures[key]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    ledger = Ledger()

    def do_POST(self) -> None:
        """Paint."""
        key = self.headers.get("idempotency-key", "")
        try:
            prompt = str(json.loads(self.rfile.read(int(self.headers["content-length"])))["prompt"])
        except (ValueError, LookupError, TypeError):
            self._tell(400, {"code": "bad_request", "message": "a prompt is missing"})
            return
        is_first = self.ledger.is_first(key)
        if "[refused]" in prompt:
            self._tell(422, POLICY)
        elif "[broken]" in prompt or ("[busy]" in prompt and is_first):
            self._tell(503, {"code": "busy", "message": "come back later"})
        else:
            time.sleep(SLOW_SECONDS if "[slow]" in prompt else 0)
            self._answer(200, "image/png", self.ledger.picture(key, prompt))

    def do_GET(self) -> None:
        """Tell how much was asked for, and how much is to be paid."""
        self._tell(200, {"requests": self.ledger.requests, "pictures": len(self.ledger.pictures)})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  as the base class has it
        """Say nothing of requests."""

    def _tell(self, status: int, told: dict[str, object] | dict[str, str] | dict[str, int]) -> None:
        self._answer(status, "application/json", json.dumps(told).encode())

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8001, help="0 takes a free one")
    with ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler) as server:
        server.daemon_threads = True
        print(f"mock provider on http://127.0.0.1:{server.server_port}", file=sys.stderr, flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
