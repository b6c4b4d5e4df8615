"""The emulator's own process: moto on a free port of loopback, quiet, and gone when its parent is.

Started by `moto_process`. It writes the port to standard output once it
listens, and ends when its standard input does, which the death of the parent brings about too.

`python -m moto.server` takes as long to start (its imports are the time), but must be told a port that may be
taken meanwhile, and logs every request.
"""

from __future__ import annotations

import functools
import io
import json
import logging
import os
import sys
import threading
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from airunner.local.emulator.ages import backdate
from airunner.local.emulator.outages import Outages
from airunner.local.emulator.repairs import MessageRetention, MessageVisibility, QueueClock, QuickTransactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CLOCK_PATH: Final = "/airunner/clock"
OUTAGE_PATH: Final = "/airunner/outage"
AGE_PATH: Final = "/airunner/age"

_BODILESS: Final = frozenset({204, 304})


class Application:
    """moto, and addresses of ours: for its queue clock, for services that are away, for what is to be old."""

    def __init__(self, clock: QueueClock) -> None:
        self._clock = clock
        self._outages = Outages()
        self._outages.install()
        self._moto = DomainDispatcherApplication(create_backend_app)
        # It looks into the file system for every service that it knows, with every request.
        vars(self._moto)["get_backend_for_host"] = functools.cache(self._moto.get_backend_for_host)
        # A transaction of moto copies its tables, and fails if they change meanwhile.
        self._one_at_a_time = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        paths: dict[str, Callable[..., None]] = {
            CLOCK_PATH: self._clock.set_ahead,
            OUTAGE_PATH: self._outages.set,
            AGE_PATH: backdate,
        }
        change = paths.get(environ.get("PATH_INFO", ""))
        if change is None:
            return self._perform(environ, start_response)
        status = "200 OK"
        try:
            change(**json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))))
        except LookupError:
            status = "404 Not Found"
        start_response(status, [("Content-Length", "2")])
        return [b"{}"]

    def _perform(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if self._outages.concern(environ):
            return self._outages.answer(environ, start_response)
        tables = environ.get("HTTP_X_AMZ_TARGET", "").startswith("DynamoDB")
        with self._one_at_a_time if tables else nullcontext():
            answer: Iterable[bytes] = self._moto(environ, start_response)
        # What waited in there may have been overtaken by an outage.
        return self._outages.answer(environ, start_response) if self._outages.concern(environ) else answer


class QuietHandler(MotoRequestHandler):
    """Serves any number of requests on a connection, each read and answered whole.

    That of the library closes the connection after each, having waited for what else might come.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # a head and its body leave together

    def run_wsgi(self) -> None:
        """Answer one request."""
        environ = self.make_environ()
        source, length = environ["wsgi.input"], environ.get("CONTENT_LENGTH")
        chunked = environ.get("wsgi.input_terminated", False)
        body = source.read() if chunked else source.read(int(length or 0))
        environ |= {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
        head: list[tuple[str, list[tuple[str, str]]]] = []

        def begin(status: str, headers: list[tuple[str, str]], _: Any = None) -> Callable[[bytes], object]:
            head.append((status, headers))
            return self.wfile.write

        answer = b"".join(self.server.app(environ, begin))
        self._send(*head[-1], answer)

    def handle_expect_100(self) -> bool:
        """Ask for the body at once: the client waits for that."""
        answer = super().handle_expect_100()
        self.wfile.flush()
        return answer

    def log(self, *_args: Any, **_arguments: Any) -> None:
        """Say nothing of requests."""

    def _send(self, status: str, headers: list[tuple[str, str]], body: bytes) -> None:
        code, _, text = status.partition(" ")
        self.send_response(int(code), text)
        for name, value in headers:
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD" and int(code) not in _BODILESS:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
        else:
            self.end_headers()
        self.wfile.flush()


def serve(
    make_application: Callable[[QueueClock], Application], request_handler: type[QuietHandler] = QuietHandler
) -> None:
    """Serve an application until standard input ends."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    clock = QueueClock()
    clock.install()
    QuickTransactions().install()
    MessageRetention().install()
    MessageVisibility().install()
    application = make_application(clock)
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=request_handler)
    threading.Thread(target=_end_with_input, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    serve(Application)
