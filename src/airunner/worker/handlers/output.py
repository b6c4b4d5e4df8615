"""The output of one handler, from whatever thread, into the events of its job."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from airunner.domain.errors import VisibilityLost, error_text
from airunner.domain.event import Progress
from airunner.domain.lines import LineSplitter
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable, Mapping

    from airunner.handlers.loop_callbacks import LoopCallbacks
    from airunner.worker.publishing.report import AttemptReport

_log = get_logger("airunner.worker")

# What may wait between a handler and its job's publisher before `write` blocks, or its next await.
_WAITING_BYTES: Final = 1024 * 1024
# What an async handler may have waiting when it writes on and on without an await; more is lost.
_UNAWAITED_BYTES: Final = 32 * 1024 * 1024
_TOO_FAST: Final = "an async handler wrote faster than its output could be taken, without an await"
# For all that print nothing, which are most.
_NO_SPLITTERS: Final[Mapping[bool, LineSplitter]] = MappingProxyType({})

OutputLines: TypeAlias = tuple[list[bytes], bool]
"""Lines, and whether they go to standard error."""


class JobOutput:
    """Implements OutputSink. The order of all output, on both streams, is kept.

    Output waits until a report is attached; when there is some and no report, `on_first_output` is called
    with the `owner`: one function serves many outputs.
    `write` blocks a handler that writes faster than the server takes. On the loop of async handlers it would
    block them all: there the one that writes is held back at its next await (`room`), and what it writes
    without one is lost beyond 32 MiB, with a Gap in its place. From `close` on what comes is dropped:
    whatever a handler still says when its job is over has no job any more.
    """

    __slots__ = (
        *("_bytes", "_callbacks", "_closed", "_held_back", "_is_async", "_lost_lines", "_pending"),
        *("_posted", "_progress", "_report", "_room", "_sealed", "_splitters", "_waiting"),
        *("on_first_output", "owner"),
    )

    def __init__(
        self, callbacks: LoopCallbacks, room: threading.Condition, *, is_async: bool = False
    ) -> None:
        self.on_first_output: Callable[[Any], None] | None = None
        self.owner: object = None
        self._report: AttemptReport | None = None
        self._callbacks = callbacks
        # One for all: most handlers print little, and a lock of its own costs more than it saves.
        self._room = room
        self._splitters: Mapping[bool, LineSplitter] = _NO_SPLITTERS
        self._is_async = is_async
        self._held_back: tuple[asyncio.Future[None], ...] = ()
        self._pending: list[OutputLines | int] = []
        """Lines, and in the place of lost ones their number."""
        self._lost_lines = 0
        self._progress: Progress | None = None
        self._bytes = 0
        self._posted = False
        self._sealed = False
        self._closed = False
        self._waiting: asyncio.Task[None] | None = None

    @property
    def silent(self) -> bool:
        """Whether nothing was ever written or reported, finished lines or not."""
        return not (self._splitters or self._progress or self._pending)

    def take(self, max_bytes: int) -> list[OutputLines] | None:
        """Close it, and return all that was written, unfinished lines too.

        None, and it stays as it is, where that is more than so many bytes, or not only lines.
        """
        with self._room:
            if self._report or self._progress or self._lost_lines or self._bytes > max_bytes:
                return None
            self._flush()
            printed = [entry for entry in self._pending if not isinstance(entry, int)]
            if len(printed) < len(self._pending):
                return None
            self._silence()
        return printed

    def attach(self, report: AttemptReport) -> None:
        """Pass output to a report, both what waits and what comes from now on. On the loop of the attempt."""
        self._report = report
        self._pass_on()

    def write(self, text: str, *, is_stderr: bool) -> None:
        """Take output; it shows when its line ends, or with `flush`."""
        with self._room:
            splitter = self._splitters.get(is_stderr)
            if splitter is None:
                splitter = LineSplitter()
                self._splitters = {**self._splitters, is_stderr: splitter}
            lines = splitter.feed(text.encode("utf-8", "backslashreplace"))
            if self._is_losing() and self._must_not_wait():
                self._lost_lines += len(lines)
                return
            self._append(lines, is_stderr)
            if not self._has_room() and not self._must_not_wait():
                self._room.wait_for(self._has_room)

    def flush(self) -> None:
        """Show the unfinished lines too."""
        with self._room:
            self._flush()

    def progress(self, done: int, total: int, message: str) -> None:
        """Take how far the handler has come."""
        with self._room:
            if not self._sealed:
                self._progress = Progress(done=done, total=total, message=message)
                self._post()

    def room(self) -> Awaitable[None] | None:
        """Return what an async handler awaits before it goes on, while it has written too much; else None."""
        if self._has_room():
            return None
        with self._room:
            if self._has_room():
                return None
            held_back = asyncio.get_running_loop().create_future()
            self._held_back = (*self._held_back, held_back)
        return held_back

    def seal(self) -> None:
        """Take no more; what waits, unfinished lines too, is passed on. Idempotent."""
        with self._room:
            self._flush()
            self._note_loss()
            self._sealed = True
            self._let_go_on()

    async def close(self) -> None:
        """Take no more, and pass on what waits, unfinished lines too. On the loop of the attempt."""
        if self._splitters:
            self.seal()
        while self._pending or self._waiting or self._progress:
            if self._waiting:
                await asyncio.wait({self._waiting})
            self._pass_on()
        self.silence()

    def silence(self) -> None:
        """Take no more output, drop what waits, and release a blocked `write`. Idempotent."""
        if self._closed:
            return
        with self._room:
            self._silence()

    def _silence(self) -> None:
        self._sealed = self._closed = True
        self._pending, self._progress, self._bytes = [], None, 0
        self._let_go_on()

    def _flush(self) -> None:
        for is_stderr, splitter in self._splitters.items():
            if rest := splitter.flush():
                self._append([rest], is_stderr)

    def _append(self, lines: list[bytes], is_stderr: bool) -> None:
        if lines and not self._sealed:
            self._note_loss()
            self._pending.append((lines, is_stderr))
            self._bytes += sum(map(len, lines))
            self._post()

    def _note_loss(self) -> None:
        if self._lost_lines:
            self._pending.append(self._lost_lines)
            self._lost_lines = 0

    def _has_room(self) -> bool:
        return self._sealed or self._bytes <= _WAITING_BYTES

    def _is_losing(self) -> bool:
        """Whether there is far too much; once lines are lost, until there is room: few gaps are better."""
        return self._bytes > (_WAITING_BYTES if self._lost_lines else _UNAWAITED_BYTES)

    def _must_not_wait(self) -> bool:
        """Whether this is the loop of async handlers, and not a thread that one of them started."""
        if not self._is_async:
            return False
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return False
        return True

    def _let_go_on(self) -> None:
        """Release whoever waits for room, in a thread or on a loop. With the lock."""
        self._room.notify_all()
        held_back, self._held_back = self._held_back, ()
        for future in held_back:
            # Its loop may be closed by now, and then nobody waits.
            with suppress(RuntimeError):
                future.get_loop().call_soon_threadsafe(_release, future)

    def _post(self) -> None:
        if not self._posted and not self._closed:
            self._posted = True
            self._callbacks.post(self._pass_on)

    def _pass_on(self) -> None:
        """Give the report what waits, until it has no room. On the loop of the attempt."""
        if self._waiting:
            return
        if self._report is None:
            if self.on_first_output:
                self.on_first_output(self.owner)
            return
        with self._room:
            pending, self._pending = self._pending, []
            progress, self._progress = self._progress, None
            self._posted = False
        try:
            self._report_all(self._report, pending, progress)
        except Exception as error:  # noqa: BLE001  it is the end of this output alone
            self._break(error)

    def _report_all(
        self, report: AttemptReport, pending: list[OutputLines | int], progress: Progress | None
    ) -> None:
        for count, entry in enumerate(pending, start=1):
            if isinstance(entry, int):
                report.lost_output(entry, _TOO_FAST)
                continue
            lines, is_stderr = entry
            room = report.output(lines, is_stderr)
            size = sum(map(len, lines))
            if room is not None:
                with self._room:
                    self._pending[:0] = pending[count:]
                    self._progress = self._progress or progress
                self._waiting = asyncio.ensure_future(self._wait_for(room, size))
                return
            self._make_room(size)
        if progress:
            report.add(progress)

    async def _wait_for(self, room: Awaitable[None], size: int) -> None:
        try:
            await room
        except Exception as error:  # noqa: BLE001  it is the end of this output alone
            self._break(error)
        finally:
            self._waiting = None
        self._make_room(size)
        self._pass_on()

    def _break(self, error: Exception) -> None:
        """Take no more: publishing has ended, which the attempt learns by itself."""
        if not isinstance(error, VisibilityLost):
            _log.error("output.failed", error=error_text(error))
        self.silence()

    def _make_room(self, size: int) -> None:
        with self._room:
            self._bytes = max(0, self._bytes - size)
            if self._has_room():
                self._let_go_on()


def _release(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
