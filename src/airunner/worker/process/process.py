"""One operating system process, from its start to its truthful end. Knows nothing of jobs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from airunner.domain.lines import LineSplitter
from airunner.telemetry.logs import get_logger
from airunner.worker.process.spawn import (
    CANNOT_START,
    LET_GO_SECONDS,
    Child,
    CouldNotStart,
    ProcessSpec,
    spawn,
)

if TYPE_CHECKING:
    from airunner.domain.clock import Clock, Timer
    from airunner.worker.process.pipe import OutputPipe

_log = get_logger("airunner.worker")

__all__ = ["CANNOT_START", "CouldNotStart", "OnOutput", "Process", "ProcessExit", "ProcessSpec", "Stop"]

UNFINISHED_LINE_MS: Final = 100
"""How long the start of a line waits for the rest: prompts and progress bars shall be seen."""

_SIGNALLED: Final = 128
"""Shells report death by signal n as exit code 128 + n, and so do we."""

OnOutput = Callable[[list[bytes], bool], Awaitable[None] | None]
"""Takes lines and whether they are from standard error. Calls of one process never overlap."""


class Stop(Enum):
    """Why we ended a process."""

    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How a process ended. A non-zero exit code is a result like any other."""

    exit_code: int
    """128 + n when signal n killed it."""
    signal: int | None
    stopped: Stop | None
    """Set if it was still running when we asked it to end, however it then ended."""
    duration_ms: int
    output_complete: bool = True
    """False if a process that was left behind still held a pipe when the bounded wait for it was over."""
    left_running: bool = False
    """True if it could not be killed, and nobody waits for it any more; its exit is then not known."""


class Process:
    """A running process, leader of a session and group of its own, without input.

    Its output goes to `on_output` in order, byte by byte what was written: lines keep their newline, an
    unfinished one is delivered after 100 ms and at the end, and one of more than 64 KiB in pieces. While
    `on_output` is awaited at most 64 KiB more per stream are read, so a slow consumer slows the process
    down. With a pseudo-terminal all output is standard output.

    If `on_output` raises, the group is killed and `wait` raises the same.
    """

    def __init__(self, spec: ProcessSpec, child: Child, on_output: OnOutput, clock: Clock) -> None:
        """Take over a started child; use `start`."""
        self.pid = child.pid
        self.started_at = clock.now()
        self._spec = spec
        self._child = child
        self._on_output = on_output
        self._clock = clock
        self._stopped: Stop | None = None
        # What lasts is measured by a clock that nobody sets.
        self._began = self._ended = clock.monotonic()
        self._released = False
        self._output_complete = True
        self._kill_at = 0
        self._kill_sent = False
        self._timers: list[Timer] = []
        self._delivery = asyncio.Lock()
        child.exited.add_done_callback(self._leader_exited)
        if spec.timeout_seconds is not None:
            self._after(spec.timeout_seconds, lambda: self.stop(Stop.TIMEOUT))
        self._supervisor = asyncio.create_task(self._supervise(), name=f"process {self.pid}")
        # A task that is cancelled before its first turn never comes to its own `finally`.
        self._supervisor.add_done_callback(lambda _: self._release())

    @classmethod
    async def start(cls, spec: ProcessSpec, *, on_output: OnOutput, clock: Clock) -> Process:
        """Start the process and return once its command runs; raise CouldNotStart if it cannot."""
        return cls(spec, await spawn(spec, clock), on_output, clock)

    async def wait(self) -> ProcessExit:
        """Return how the process ended, after all of its output was delivered. May be called again.

        What it leaves behind in its group may go on writing for `pipe_wait_seconds` (when stopped, at least
        for the grace period) and is then killed; if it holds no pipe, it is killed at once. Cancelling this
        kills the group, drops undelivered output, reaps the process and then raises; a second cancellation
        leaves the reaping to the background, and so does a process that cannot be killed.
        """
        try:
            return await asyncio.shield(self._supervisor)
        except asyncio.CancelledError:
            self._supervisor.cancel()
            await asyncio.wait({self._supervisor})
            raise

    def stop(self, reason: Stop) -> None:
        """End the process: SIGTERM to its group, SIGKILL after the grace period; if LOST, SIGKILL at once.

        The first reason stands and further calls change nothing, but LOST always kills. If the process has
        exited already, its own end stands and only what it left behind is killed.
        """
        if self._stopped is None and not self._child.has_exited():
            self._stopped = reason
            if reason is not Stop.LOST:
                self._terminate()
                return
        if self._stopped is None or reason is Stop.LOST:
            self.kill()

    def kill(self) -> None:
        """Send SIGKILL to the group; harmless when it is over.

        A leader that has not exited some time after it is let go: one that changed its user cannot be killed,
        and one that waits for a device in vain cannot die.
        """
        self._child.signal_group(signal.SIGKILL)
        if not self._kill_sent and not self._child.exited.done():
            self._kill_sent = True
            self._after(LET_GO_SECONDS, self._let_go)

    def _let_go(self) -> None:
        self._child.let_go()
        if self._child.left_running:
            _log.warning("process.left_running", pid=self.pid, hint="it could not be killed")

    def _terminate(self) -> None:
        self._kill_at = self._clock.monotonic() + round(self._spec.grace_seconds * 1000)
        self._after(self._spec.grace_seconds, self.kill)
        self._child.signal_group(signal.SIGTERM)

    def _leader_exited(self, _: asyncio.Future[None]) -> None:
        self._ended = self._clock.monotonic()
        for output in self._child.outputs:
            output.let_end()
        # A group that was asked to end keeps its grace period, also when its leader is the first to go.
        grace_left = (self._kill_at - self._ended) / 1000
        self._after(max(self._spec.pipe_wait_seconds, grace_left), self._give_up_pipes)

    def _give_up_pipes(self) -> None:
        self._output_complete = not any(output.has_writer() for output in self._child.outputs)
        self.kill()
        for output in self._child.outputs:
            output.drain()

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._clock.call_at(self._clock.now() + round(seconds * 1000), callback))

    async def _supervise(self) -> ProcessExit:
        child = self._child
        readers = [asyncio.create_task(self._forward(output)) for output in child.outputs]
        try:
            done, _ = await asyncio.wait({*readers, child.exited}, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self.kill()
            for reader in readers:
                reader.cancel()
            try:
                await asyncio.wait({*readers, child.exited})
            finally:
                self._release()
        for finished in done:
            finished.result()
        return self._exit(child.reap())

    def _release(self) -> None:
        if self._released:
            return
        self._released = True
        for timer in self._timers:
            timer.cancel()
        self._child.close()
        self._child.abandon()
        if not self._child.has_exited():
            self._after(LET_GO_SECONDS, self._let_go)

    def _exit(self, returncode: int) -> ProcessExit:
        killed_by = -returncode if returncode < 0 else None
        return ProcessExit(
            exit_code=returncode if killed_by is None else _SIGNALLED + killed_by,
            signal=killed_by,
            stopped=self._stopped,
            duration_ms=self._ended - self._began,
            output_complete=self._output_complete,
            left_running=self._child.left_running,
        )

    async def _forward(self, output: OutputPipe) -> None:
        splitter = LineSplitter()
        show_tail_at: int | None = None
        while (chunk := await output.read(show_tail_at)) != b"":
            lines = splitter.feed(chunk or b"")
            if not lines and show_tail_at is not None and self._clock.monotonic() >= show_tail_at:
                lines = _as_lines(splitter.flush())
            if lines:
                await self._deliver(lines, output)
                show_tail_at = None
            # Counted from the end of the delivery: a slow consumer is no reason to cut lines.
            if show_tail_at is None and splitter.pending:
                show_tail_at = self._clock.monotonic() + UNFINISHED_LINE_MS
            # A flood with a quick consumer never waits for anything: let others have their turn.
            await asyncio.sleep(0)
        await self._deliver(_as_lines(splitter.flush()), output)

    async def _deliver(self, lines: list[bytes], output: OutputPipe) -> None:
        if not lines:
            return
        async with self._delivery:
            delivered = self._on_output(lines, output.is_stderr)
            if delivered is not None:
                await delivered


def _as_lines(tail: bytes | None) -> list[bytes]:
    return [] if tail is None else [tail]
