"""The page and the API of a server behind one address: python3 serve.py, with nothing installed.

It serves the files of this folder, and passes requests for /job.v1.* and /v1/ on to AIRUNNER_SERVER. For one
person who tries the page; many people want a real web server, see the README.
"""

from __future__ import annotations

import argparse
import http.client
import os
from contextlib import closing, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

API = ("/job.v1.", "/v1/")
# Host and Origin too: they tell the server that it is a page of this machine that asks.
PASSED_ON = ("host", "origin", "content-type", "accept", "last-event-id")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one")
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent, help="where the page is")
    options = parser.parse_args()
    Handler.server_url = os.environ.get("AIRUNNER_SERVER", "http://127.0.0.1:8080")
    if not (options.folder / "client.js").is_file():
        parser.error("there is no client.js; make it from client.ts, as the README says")
    handler = partial(Handler, directory=str(options.folder))
    with ThreadingHTTPServer(("127.0.0.1", options.port), handler) as server:
        print(f"open http://localhost:{server.server_port}", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


class Handler(SimpleHTTPRequestHandler):
    """One request of the browser."""

    server_url: str

    def do_GET(self) -> None:
        if self.path.startswith(API):
            self.pass_on()
        else:
            super().do_GET()

    def do_POST(self) -> None:
        if self.path.startswith(API):
            self.pass_on()
        else:
            self.send_error(405)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")  # who edits the page wants to see it
        super().end_headers()

    def pass_on(self) -> None:
        """Ask the server, and hand its answer on piece by piece, as it comes."""
        target = urlsplit(self.server_url)
        secure = target.scheme == "https"
        connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = connect(target.hostname or "", target.port)
        headers = {name: value for name, value in self.headers.items() if name.lower() in PASSED_ON}
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        try:
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
        except OSError:
            self.send_error(502, "The airunner server does not answer")
            return
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.headers.get("content-type", ""))
        self.end_headers()
        # When one side is gone, the connection ends, and a browser that still wants more comes back.
        with closing(connection), suppress(OSError, http.client.HTTPException):
            while piece := answer.read1():
                self.wfile.write(piece)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:  # noqa: ARG002  as the base class has it
        last = self.headers.get("last-event-id")
        after = f" after {last}" if last else ""
        self.log_message("%s %s%s: %s", self.command, self.path, after, int(code))


if __name__ == "__main__":
    main()
