"""What handlers print, as log lines: messages have no events that anybody could watch."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from airunner.handlers.loop_callbacks import LoopCallbacks

_log = get_logger("airunner.generation")

_MAX_LINE: Final = 4_000
# Of one handler, while the loop is behind; what comes beyond is dropped and counted.
_MAX_WAITING: Final = 1_000


class LoggedOutput:
    """Implements OutputSink: each line is a log line `job.output`, written on the worker's loop."""

    def __init__(self, callbacks: LoopCallbacks, session_id: str, handler: str) -> None:
        self._callbacks = callbacks
        self._facts = {"id": session_id, "handler": handler}
        self._lock = threading.Lock()
        self._tails = {False: "", True: ""}
        self._waiting = 0
        self._dropped = 0

    def write(self, text: str, *, is_stderr: bool) -> None:
        """Take output; it is logged when its line ends, or with `flush`."""
        with self._lock:
            *lines, tail = (self._tails[is_stderr] + text).split("\n")
            while len(tail) > _MAX_LINE:
                lines.append(tail[:_MAX_LINE])
                tail = tail[_MAX_LINE:]
            self._tails[is_stderr] = tail
        for line in lines:
            self._post(line, is_stderr=is_stderr)

    def flush(self) -> None:
        """Log the unfinished lines too."""
        with self._lock:
            tails, self._tails = self._tails, {False: "", True: ""}
        for is_stderr, tail in tails.items():
            if tail:
                self._post(tail, is_stderr=is_stderr)

    def progress(self, done: int, total: int, message: str) -> None:
        """Log how far the handler has come."""
        self._post(f"{done} of {total}{f': {message}' if message else ''}", is_stderr=False)

    def room(self) -> None:
        """Hold nobody back."""

    def _post(self, line: str, *, is_stderr: bool) -> None:
        with self._lock:
            if self._waiting >= _MAX_WAITING:
                self._dropped += 1
                return
            self._waiting += 1
        self._callbacks.post(lambda: self._write(line, is_stderr=is_stderr))

    def _write(self, line: str, *, is_stderr: bool) -> None:
        with self._lock:
            self._waiting -= 1
            dropped, self._dropped = self._dropped, 0
        stream = "stderr" if is_stderr else "stdout"
        _log.info("job.output", line=line[:_MAX_LINE], stream=stream, **self._facts)
        if dropped:
            _log.warning("job.output_dropped", lines=dropped, **self._facts)
