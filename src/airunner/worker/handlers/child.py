"""The program of a handler process; never imported by a worker, only started by `processes`.

It loads the handlers and does what it is told, one call after the other, until the worker is gone.
Arguments: the descriptor of the socket to the worker, then the sources of handlers.
"""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
from contextvars import Context as Variables
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from airunner.domain.errors import message_of, permanent_failure
from airunner.handlers.arguments import HandlerError
from airunner.handlers.calls import HandlerCall
from airunner.handlers.capture import captured
from airunner.handlers.context import Context
from airunner.handlers.in_turn import InTurn
from airunner.handlers.loading import load_handlers
from airunner.worker.handlers.failures import details_of, summary_of
from airunner.worker.handlers.frames import encode, receive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airunner.handlers.registry import Registry

_Call: TypeAlias = "HandlerCall[None, WorkerOutput]"

# Pieces of output and of errors: the worker shows less of an error, and takes no message that is too large.
_PIECE: Final = 256 * 1024


def main(arguments: Sequence[str]) -> None:
    """Serve the worker at the other end of the socket."""
    connection = socket.socket(fileno=int(arguments[0]))
    connection.set_inheritable(False)
    # A process that a handler forks has nothing to tell; with the socket it would hide our own end.
    os.register_at_fork(after_in_child=connection.close)
    worker = WorkerConnection(connection)
    try:
        handlers = load_handlers(arguments[1:])
    except HandlerError as error:
        worker.tell("unusable", str(error)[:_PIECE])
        return
    threading.Thread(target=worker.listen, args=(handlers,), name="airunner-worker", daemon=True).start()
    with captured():
        worker.serve()


class WorkerOutput:
    """Implements OutputSink: passes everything on, until it is sealed."""

    def __init__(self, worker: WorkerConnection) -> None:
        self._worker = worker
        self._sealed = False

    def write(self, text: str, *, is_stderr: bool) -> None:
        """Take output; blocks while the worker takes none."""
        for start in range(0, len(text), _PIECE):
            self._tell("output", text[start : start + _PIECE], is_stderr)

    def flush(self) -> None:
        """Show the unfinished lines too."""
        self._tell("flush")

    def progress(self, done: int, total: int, message: str) -> None:
        """Take how far the handler has come."""
        self._tell("progress", done, total, message[:_PIECE])

    def room(self) -> None:
        """Return None: no async handler is here."""

    def seal(self) -> None:
        """Pass on nothing more, not even what has come and was not sent: the next job would get it."""
        self._worker.in_turn.run(self._seal)

    def _seal(self) -> None:
        self._sealed = True

    def _tell(self, *message: object) -> None:
        frame = encode(*message)
        self._worker.in_turn.run(lambda: self._pass_on(frame))

    def _pass_on(self, frame: bytes) -> None:
        if not self._sealed:
            self._worker.send(frame)


class WorkerConnection:
    """The other end: orders come from it, and what becomes of them goes there."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._calls: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self.in_turn = InTurn()
        """Whoever sends does so in turn: no message gets into another."""

    def tell(self, *message: object) -> None:
        """Send a message; blocks while the worker takes none. After a fork nothing is sent."""
        frame = encode(*message)
        self.in_turn.run(lambda: self.send(frame))

    def send(self, frame: bytes) -> None:
        """Send an encoded message, in turn."""
        try:
            self._connection.sendall(frame)
        except OSError:
            if self._connection.fileno() >= 0:
                # The worker is gone: nobody would see what this process does.
                os._exit(1)

    def listen(self, handlers: Registry) -> None:
        """Take orders until the worker is gone, and end this process then, whatever it does."""
        try:
            call: _Call | None = None
            for message in receive(self._connection):
                if message != ["stop"]:
                    call = self._ordered(handlers, *message)
                    self._calls.put(call)
                elif call:
                    call.stop()
        finally:
            os._exit(0)

    def serve(self) -> None:
        """Do calls, one after the other."""
        while True:
            self.do(self._calls.get())

    def do(self, call: _Call) -> None:
        """Do a call; its end is the last that the worker hears of it."""
        self.tell("begun")
        Variables().run(call.run)
        call.output.seal()
        self.tell(*_end(call))

    def _ordered(
        self, handlers: Registry, name: str, payload_json: str, context: dict[str, Any] | None
    ) -> _Call:
        output = WorkerOutput(self)
        return HandlerCall(
            None, handlers[name], payload_json, output=output, context=_context(context, output)
        )


def _context(fields: dict[str, Any] | None, output: WorkerOutput) -> Context | None:
    if fields is None:
        return None
    for name in ("environment", "metadata"):
        fields[name] = MappingProxyType(fields[name])
    return Context(**fields, output=output)


def _end(call: _Call) -> tuple[object, ...]:
    error = call.error
    if error is None:
        return "returned", call.result
    if failure := permanent_failure(error):
        return "permanent", failure.code[:_PIECE], message_of(failure)[:_PIECE]
    return "failed", summary_of(error)[:_PIECE], details_of(error)[-_PIECE:]


if __name__ == "__main__":
    main(sys.argv[1:])
