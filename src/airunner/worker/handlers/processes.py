"""Sync handlers in processes of their own, one call at a time in each.

A handler there shares the interpreter with nobody, and can be killed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias

from airunner.domain.errors import PermanentFailure
from airunner.domain.event import signal_name
from airunner.handlers.calls import HandlerEnded
from airunner.telemetry.logs import get_logger
from airunner.worker.handlers.failures import RemoteFailure
from airunner.worker.handlers.frames import encode, receive
from airunner.worker.process.spawn import ProcessSpec, start_companion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airunner.handlers.context import Context
    from airunner.worker.attempt import AttemptCall

_log = get_logger("airunner.worker")

_End: TypeAlias = tuple[Exception | None, str]
"""The error and the result that a handler ended with."""

_PROGRAM: Final = "airunner.worker.handlers.child"
_STOP: Final = encode("stop")
# A process that ends before it has begun a call did nothing of it: another may.
_TRIES: Final = 3
_END_SECONDS: Final = 5.0


class HandlerProcesses:
    """Runs calls in processes that are started when they are needed, and replaced when they die.

    There are as many as calls run at once. Each loads the handlers of `sources` by itself, has the given
    environment, and dies with the worker.
    """

    def __init__(self, sources: Sequence[str], environment: Mapping[str, str]) -> None:
        self._sources = tuple(sources)
        self._environment = dict(environment)
        self._lock = threading.Lock()
        self._all: set[_HandlerProcess] = set()
        self._idle: list[_HandlerProcess] = []
        self._closed = False

    def run(self, call: AttemptCall) -> None:
        """Run a call to its end, in the current thread, which only waits. Raises nothing."""
        for _ in range(_TRIES):
            try:
                process = self._take()
            except OSError as error:
                call.end(HandlerEnded(f"cannot start a process for the handler: {error.strerror}"))
                return
            begun = process.run(call)
            self._give_back(process)
            if begun:
                return
        call.end(HandlerEnded("the process of the handler ended before it began"))

    def close(self) -> None:
        """Kill all processes, also those at work. Idempotent."""
        with self._lock:
            self._closed = True
            processes, self._all = self._all, set()
        for process in processes:
            process.end()

    def _take(self) -> _HandlerProcess:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        process = _HandlerProcess(self._sources, self._environment)
        with self._lock:
            closed = self._closed
            self._all.add(process)
        if closed:
            process.end()
        return process

    def _give_back(self, process: _HandlerProcess) -> None:
        alive = process.alive
        with self._lock:
            if alive and not self._closed:
                self._idle.append(process)
                return
            self._all.discard(process)
        process.end()


class _HandlerProcess:
    """One process, which does one call at a time."""

    def __init__(self, sources: Sequence[str], environment: Mapping[str, str]) -> None:
        self._connection, theirs = socket.socketpair()
        with theirs:
            try:
                self._popen = start_companion(
                    _spec(theirs.fileno(), sources, environment), (theirs.fileno(),)
                )
            except OSError:
                self._connection.close()
                raise
        self._messages = receive(self._connection)
        self._sending = threading.Lock()
        self._reaching = threading.Lock()
        self._call: AttemptCall | None = None

    @property
    def alive(self) -> bool:
        """Whether it can take a call."""
        if self._popen.returncode is not None:
            return False
        # It stays a zombie until `end`, so that its id is no stranger's while its group may be killed.
        return os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def run(self, call: AttemptCall) -> bool:
        """Run a call and end it; False if the process was gone before it could begin it."""
        with self._reaching:
            self._call = call
        try:
            begun, end = self._do(call)
        finally:
            with self._reaching:
                self._call = None
        if end is None:
            how = self.end()
            _log.warning("handler.process_ended", how=how, handler=call.handler.name if begun else "")
            if not begun and not call.stopped:
                return False
            end = HandlerEnded(f"the process of the handler {how}"), ""
        call.end(*end)
        return True

    def _do(self, call: AttemptCall) -> tuple[bool, _End | None]:
        """Return whether the call began, and how it ended; None if the process ended instead."""
        self._order(call)
        call.attach(_Reach(self, call))
        begun = False
        for kind, *values in self._messages:
            if kind == "begun":
                begun = True
            elif not _passed_on(call, kind, values):
                return begun, _end(kind, values)
        return begun, None

    def stop(self, call: AttemptCall) -> None:
        """Tell the handler of this call to end. Does not block: who cannot be told will be killed."""
        if self._sending.acquire(blocking=False):
            try:
                with self._reaching, suppress(OSError):
                    if self._call is call:
                        self._connection.send(_STOP, socket.MSG_DONTWAIT)
            finally:
                self._sending.release()

    def kill(self, call: AttemptCall) -> None:
        """Kill the process if it is still at this call."""
        with self._reaching:
            if self._call is call:
                self._kill()

    def end(self) -> str:
        """Kill the process and all that it started, and return how it ended. May be called again."""
        if self._popen.returncode is None:
            self._kill()
            with suppress(subprocess.TimeoutExpired):
                self._popen.wait(_END_SECONDS)
        self._connection.close()
        code = self._popen.returncode
        if code is None:
            return "cannot be killed"
        return f"exited with {code}" if code >= 0 else f"was killed by {signal_name(-code)}"

    def _order(self, call: AttemptCall) -> None:
        frame = encode(call.handler.name, call.payload_json, _fields(call.context))
        with self._sending, suppress(OSError):  # one that is gone says nothing, which shows below
            self._connection.sendall(frame)

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        # Whoever it left behind with the socket shall keep nobody waiting.
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


class _Reach:
    """Implements CallControl for one call of a process, and no later one."""

    def __init__(self, process: _HandlerProcess, call: AttemptCall) -> None:
        self._process = process
        self._call = call

    def stop(self) -> None:
        """Tell the handler to end."""
        self._process.stop(self._call)

    def kill(self) -> None:
        """End its process."""
        self._process.kill(self._call)


def _passed_on(call: AttemptCall, kind: str, values: list[object]) -> bool:
    """Pass on what the handler prints and reports; return whether the message was such."""
    match kind, values:
        case "output", [str(text), bool(is_stderr)]:
            call.output.write(text, is_stderr=is_stderr)
        case "flush", []:
            call.output.flush()
        case "progress", [int(done), int(total), str(message)]:
            call.output.progress(done, total, message)
        case _:
            return False
    return True


def _end(kind: str, values: list[object]) -> _End | None:
    """Return the error and the result that a handler ended with; None for what nobody understands."""
    match kind, values:
        case "returned", [str(result)]:
            return None, result
        case "permanent", [str(code), str(message)]:
            return PermanentFailure(code, message), ""
        case "failed", [str(summary), str(details)]:
            return RemoteFailure(summary, details), ""
        case "unusable", [str(reason)]:
            return HandlerEnded(f"the process of the handler cannot load it: {reason}"), ""
    return None


def _fields(context: Context | None) -> dict[str, object] | None:
    if context is None:
        return None
    return {
        "job_id": context.job_id,
        "queue": context.queue,
        "attempt": context.attempt,
        "request_id": context.request_id,
        "last_try": context.last_try,
        "environment": dict(context.environment),
        "metadata": dict(context.metadata),
        "owner": context.owner,
    }


def _spec(descriptor: int, sources: Sequence[str], environment: Mapping[str, str]) -> ProcessSpec:
    # Without the current folder on its path: a file called json.py there hides no module of that name.
    args = ("-P", "-m", _PROGRAM, str(descriptor), *sources)
    return ProcessSpec(command=sys.executable, args=args, environment=environment)
