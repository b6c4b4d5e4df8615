"""The emulator's own process: moto on a free port of loopback, quiet, and gone when its parent is.

Started by `moto_process`, never imported. It writes the port to standard output once it
listens, and ends when its standard input does, which the death of the parent brings about too.

`python -m moto.server` takes as long to start (its imports are the time), but must be told a port that may be
taken meanwhile, and logs every request.
"""

from __future__ import annotations

import copy
import functools
import json
import logging
import os
import sys
import threading
import time
import types
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import moto.dynamodb.models
import moto.sqs.models
from moto.core.utils import unix_time
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.models.table import Table
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CLOCK_PATH: Final = "/airunner/clock"

_CHANGED_IN_PLACE: Final = frozenset({"M", "L", "SS", "NS", "BS"})


class QueueClock:
    """The time that SQS goes by; it can be moved on, so that no test waits for a visibility timeout."""

    def __init__(self) -> None:
        self._ahead_seconds = 0.0
        # Reading moto's own clock is slow, and it reads it for every message of a queue with every call.
        self._started_seconds = unix_time() - time.monotonic()

    def install(self) -> None:
        vars(moto.sqs.models).update(unix_time=self._seconds, unix_time_millis=self._millis)

    def set_ahead(self, seconds: float) -> None:
        self._ahead_seconds = seconds

    def _seconds(self) -> float:
        return self._started_seconds + time.monotonic() + self._ahead_seconds

    def _millis(self) -> float:
        return self._seconds() * 1000


class QuickTransactions:
    """Rolls transactions back to a copy that costs little.

    moto copies a whole table in depth for every action of a transaction, which is minutes for a few hundred
    jobs. One copy of its items, in depth only where a write may change a value in place, does the same.
    """

    def __init__(self) -> None:
        self._copies: dict[int, Any] = {}

    def install(self) -> None:
        write = DynamoDBBackend.transact_write_items

        def transact_write_items(backend: Any, items: list[dict[str, Any]]) -> None:
            self._copies.clear()
            write(backend, items)

        type.__setattr__(DynamoDBBackend, "transact_write_items", transact_write_items)
        copying = types.SimpleNamespace(copy=copy.copy, deepcopy=self._copied)
        vars(moto.dynamodb.models)["copy"] = copying

    def _copied(self, thing: Any, memo: Any = None) -> Any:
        if not isinstance(thing, Table):
            return copy.deepcopy(thing, memo)
        if id(thing) not in self._copies:
            table = self._copies[id(thing)] = copy.copy(thing)
            table.items = copy.copy(thing.items)
            for key, kept in thing.items.items():
                ranged = isinstance(kept, dict)
                table.items[key] = {at: _item(one) for at, one in kept.items()} if ranged else _item(kept)
        return self._copies[id(thing)]


class Application:
    """moto, and one address of ours that sets its queue clock."""

    def __init__(self, clock: QueueClock) -> None:
        self._clock = clock
        self._moto = DomainDispatcherApplication(create_backend_app)
        # It looks into the file system for every service that it knows, with every request.
        vars(self._moto)["get_backend_for_host"] = functools.cache(self._moto.get_backend_for_host)
        # A transaction of moto copies its tables, and fails if they change meanwhile.
        self._one_at_a_time = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != CLOCK_PATH:
            tables = environ.get("HTTP_X_AMZ_TARGET", "").startswith("DynamoDB")
            with self._one_at_a_time if tables else nullcontext():
                answer: Iterable[bytes] = self._moto(environ, start_response)
            return answer
        asked = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        self._clock.set_ahead(float(asked["ahead_seconds"]))
        start_response("200 OK", [("Content-Length", "2")])
        return [b"{}"]


class QuietHandler(MotoRequestHandler):
    """The body of an answer is not held back until the client has acknowledged the head."""

    disable_nagle_algorithm = True

    def log(self, *_args: Any, **_arguments: Any) -> None:
        """Say nothing of requests."""


def main() -> None:
    """Serve until standard input ends."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    clock = QueueClock()
    clock.install()
    QuickTransactions().install()
    server = make_server("127.0.0.1", 0, Application(clock), threaded=True, request_handler=QuietHandler)
    threading.Thread(target=_end_with_input, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


def _item(item: Any) -> Any:
    copied = copy.copy(item)
    copied.attrs = {name: _value(value) for name, value in item.attrs.items()}
    return copied


def _value(value: Any) -> Any:
    return copy.deepcopy(value) if value.type in _CHANGED_IN_PLACE else value


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
