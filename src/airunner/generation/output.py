"""What handlers print, as log lines: messages have no events that anybody could watch."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from airunner.handlers.in_turn import InTurn
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._in_turn = InTurn()
        self._tails = {False: "", True: ""}
        self._lines: deque[tuple[str, bool]] = deque()
        """Those that wait for the loop, and whether they go to standard error."""
        self._posted = False
        self._sealed = False
        self._dropped = 0
        self._dropped_told = 0

    def write(self, text: str, *, is_stderr: bool) -> None:
        """Take output; it is logged when its line ends, or with `flush`."""
        self._take(lambda: self._split(text, is_stderr))

    def flush(self) -> None:
        """Log the unfinished lines too."""
        self._take(self._end_lines)

    def progress(self, done: int, total: int, message: str) -> None:
        """Log how far the handler has come."""
        line = f"{done} of {total}{f': {message}' if message else ''}"
        self._take(lambda: self._add(line, is_stderr=False))

    def room(self) -> None:
        """Hold nobody back."""

    def seal(self) -> None:
        """Take no more; what has come, unfinished lines too, is logged. Idempotent."""
        self._take(self._seal)

    def _take(self, step: Callable[[], None]) -> None:
        self._in_turn.run(step)
        # Not in turn: nobody waits for the loop's callbacks while others wait for this output.
        if self._lines and not self._posted:
            self._posted = True
            self._callbacks.post(self._log_lines)

    def _split(self, text: str, is_stderr: bool) -> None:
        *lines, tail = (self._tails[is_stderr] + text).split("\n")
        *pieces, self._tails[is_stderr] = _pieces(tail)
        for line in (*lines, *pieces):
            self._add(line, is_stderr=is_stderr)

    def _end_lines(self) -> None:
        tails, self._tails = self._tails, {False: "", True: ""}
        for is_stderr, tail in tails.items():
            if tail:
                self._add(tail, is_stderr=is_stderr)

    def _seal(self) -> None:
        self._end_lines()
        self._sealed = True

    def _add(self, line: str, *, is_stderr: bool) -> None:
        if self._sealed:
            return
        if len(self._lines) < _MAX_WAITING:
            self._lines.append((line[:_MAX_LINE], is_stderr))
        else:
            self._dropped += 1

    def _log_lines(self) -> None:
        """Log what waits. On the loop."""
        # Before anything is taken: what comes from here on is posted anew.
        self._posted = False
        for _ in range(len(self._lines)):
            line, is_stderr = self._lines.popleft()
            stream = "stderr" if is_stderr else "stdout"
            _log.info("job.output", line=line, stream=stream, **self._facts)
        dropped = self._dropped
        if dropped > self._dropped_told:
            _log.warning("job.output_dropped", lines=dropped - self._dropped_told, **self._facts)
            self._dropped_told = dropped


def _pieces(text: str) -> list[str]:
    """Cut a text into pieces that fit a log line; one at least, the last of which may go on."""
    # Cut from the whole: to cut each off the rest takes minutes for what is printed in a moment.
    return [text[start : start + _MAX_LINE] for start in range(0, len(text), _MAX_LINE)] or [""]
