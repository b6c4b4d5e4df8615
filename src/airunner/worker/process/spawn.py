"""Starting one operating system process and holding on to it, on Linux and on any event loop.

Pipes and the exit are watched as plain descriptors of the loop, so neither a child watcher nor SIGCHLD is
involved, and stock asyncio and uvloop behave the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import marshal
import os
import shutil
import signal
import subprocess
import sys
import termios
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airunner.config import descriptor_limit_for_jobs, environment_for_jobs
from airunner.worker.process.pipe import OutputPipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airunner.domain.clock import Clock

CANNOT_START: Final = 126
"""The exit code for a command that exists, but does not start."""
COMMAND_NOT_FOUND: Final = 127

TERMINAL_ROWS: Final = 24
TERMINAL_COLUMNS: Final = 80

LET_GO_SECONDS: Final = 10.0
"""How long after SIGKILL the exit of a process is awaited."""

_LAUNCHER: Final = Path(__file__).with_name("launch.py")
_STARTED: Final = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """What to start, and the limits it is held to."""

    command: str
    """Name, searched in the PATH of `environment`, or path of the executable."""
    args: tuple[str, ...] = ()
    environment: Mapping[str, str]
    """All variables of the process: it inherits none."""
    working_directory: str | None = None
    pty: bool = False
    timeout_seconds: float | None = None
    grace_seconds: float = 10.0
    """Between SIGTERM and SIGKILL."""
    pipe_wait_seconds: float = 2.0
    """How long a pipe may stay open after the exit, in the hands of a process that was left behind."""


class CouldNotStart(Exception):
    """The command never began; the text tells the author of the job why."""

    def __init__(self, text: str, spec: ProcessSpec) -> None:
        super().__init__(text)
        self.exit_code = CANNOT_START if _exists(spec) else COMMAND_NOT_FOUND
        """What a shell would exit with."""


class Child:
    """A started process: its group, its pipes, its exit.

    The leader stays a zombie until `reap`, so its id is no stranger's while the group may be signalled.
    """

    def __init__(self, popen: subprocess.Popen[bytes], outputs: tuple[OutputPipe, ...]) -> None:
        self.pid = popen.pid
        self.outputs = outputs
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done as soon as the exit was noticed. Wait with asyncio.wait: cancelling it would lose the exit."""
        self.left_running = False
        """Whether it was let go."""
        self._abandoned = False
        self._popen = popen
        _watch_exit(popen.pid, self._notice_exit)

    def has_exited(self) -> bool:
        """Return whether the leader has exited, noticed by the event loop or not."""
        if self._popen.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to all processes of the group; nothing after `reap`."""
        if self._popen.returncode is None:
            # A group that changed its user may be out of reach; then only its own end ends it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def let_go(self) -> None:
        """Wait no longer for the exit of a leader that cannot be killed: it counts as noticed."""
        if not self.has_exited():
            self.left_running = True
            self._settle()

    def reap(self) -> int:
        """Collect the leader and return its exit; negative is the signal. May be called again. Never waits.

        One that has not exited is collected when it does, and counts as killed.
        """
        return self._popen.wait() if self.has_exited() else -signal.SIGKILL

    def abandon(self) -> None:
        """Kill the group and collect its leader, now if it has exited and otherwise when it does."""
        self.signal_group(signal.SIGKILL)
        self._abandoned = True
        self.reap()

    def close(self) -> None:
        """Close the pipes."""
        for output in self.outputs:
            output.close()

    def _notice_exit(self) -> None:
        if self._abandoned:
            self._popen.wait()
        self._settle()

    def _settle(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)


async def spawn(spec: ProcessSpec, clock: Clock) -> Child:
    """Start the process in a session and group of its own and return once its command runs.

    It gets SIGKILL when the worker dies, or the thread that called this: call it on a loop that lives as long
    as the worker. (The kernel forgets that for commands that change their user by set-uid.) Raises
    CouldNotStart; cancelled or failed, it leaves neither process nor descriptor behind, but for a process
    that cannot be killed, and when it is cancelled twice.
    """
    _refuse_impossible(spec)
    with contextlib.ExitStack() as unless_started, contextlib.ExitStack() as always:
        try:
            popen, outputs, report = _launch(spec, clock, unless_started, always)
        except OSError as error:
            raise CouldNotStart(f"cannot start a process: {error.strerror}", spec) from None
        child = Child(popen, outputs)
        unless_started.callback(child.abandon)
        outcome = ""
        try:
            outcome = await _read_to_end(report)
            if outcome == _STARTED:
                unless_started.pop_all()
                return child
        finally:
            if outcome != _STARTED:
                child.signal_group(signal.SIGKILL)
                await asyncio.wait({child.exited}, timeout=LET_GO_SECONDS)
        raise CouldNotStart(_explain(spec, outcome), spec)


def start_companion(spec: ProcessSpec, descriptors: tuple[int, ...]) -> subprocess.Popen[bytes]:
    """Start a program of our own that dies with the worker as jobs do, and hand it open descriptors.

    It has a session of its own, no input, and the standard output and error of the worker. Whether its
    command runs it must say by itself. It gets SIGKILL when the worker dies, or the thread that called this.
    """
    with contextlib.ExitStack() as launcher_only:
        order = os.memfd_create("airunner-order")
        launcher_only.callback(os.close, order)
        os.write(order, _marshalled(spec))
        os.lseek(order, 0, os.SEEK_SET)
        report = os.open(os.devnull, os.O_WRONLY)
        launcher_only.callback(os.close, report)
        return subprocess.Popen(  # noqa: S603 - our own program
            (sys.executable, "-I", "-S", _LAUNCHER, str(order), str(report), str(os.getpid())),
            stdin=subprocess.DEVNULL,
            pass_fds=(order, report, *descriptors),
            start_new_session=True,
            env=spec.environment,
        )


def _refuse_impossible(spec: ProcessSpec) -> None:
    if not spec.command:
        raise CouldNotStart("no command given", spec)
    if any("\0" in text for text in (spec.command, *spec.args, spec.working_directory or "")):
        text = "the command, its arguments or its working directory contain a NUL character"
        raise CouldNotStart(text, spec)
    for name, setting in spec.environment.items():
        if not name or "=" in name or "\0" in name or "\0" in setting:
            raise CouldNotStart(f"not a possible environment variable: {name!r}", spec)
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        raise CouldNotStart("the worker ignores SIGCHLD: the exit code would be lost", spec)


def _launch(
    spec: ProcessSpec, clock: Clock, unless_started: contextlib.ExitStack, always: contextlib.ExitStack
) -> tuple[subprocess.Popen[bytes], tuple[OutputPipe, ...], OutputPipe]:
    """Start the launcher. Our ends of the pipes are closed `unless_started`, what only it needs at once."""
    with contextlib.ExitStack() as launcher_only:

        def ends(ours_and_its: tuple[int, int], ours_closes: contextlib.ExitStack) -> tuple[int, int]:
            for closes, descriptor in zip((ours_closes, launcher_only), ours_and_its, strict=True):
                closes.callback(os.close, descriptor)
            return ours_and_its

        order = os.memfd_create("airunner-order")
        launcher_only.callback(os.close, order)
        os.write(order, _marshalled(spec))
        os.lseek(order, 0, os.SEEK_SET)
        report_read, report_write = ends(os.pipe(), always)
        if spec.pty:
            out_read, out_write = os.openpty()
            unless_started.callback(os.close, out_read)
            unless_started.callback(os.close, out_write)
            _tame_terminal(out_write)
            stdin = err_write = out_write
            # A command may close its terminal and open it again: it is over with the command, not before.
            outputs = [OutputPipe(out_read, is_stderr=False, clock=clock, writer=out_write)]
        else:
            stdin = subprocess.DEVNULL
            out_read, out_write = ends(os.pipe(), unless_started)
            err_read, err_write = ends(os.pipe(), unless_started)
            outputs = [
                OutputPipe(out_read, is_stderr=False, clock=clock),
                OutputPipe(err_read, is_stderr=True, clock=clock),
            ]
        popen = subprocess.Popen(  # noqa: S603 - starting the command of a job is the purpose
            (sys.executable, "-I", "-S", _LAUNCHER, str(order), str(report_write), str(os.getpid())),
            stdin=stdin,
            stdout=out_write,
            stderr=err_write,
            pass_fds=(order, report_write),
            start_new_session=True,
            env=environment_for_jobs(),
        )
    return popen, tuple(outputs), OutputPipe(report_read, is_stderr=False, clock=clock)


def _marshalled(spec: ProcessSpec) -> bytes:
    """Encode the order in a format that the launcher reads without imports, as the bytes that exec will see.

    It travels beside the environment, not in it: variables such as LD_LIBRARY_PATH are for the command alone.
    """
    directory = None if spec.working_directory is None else os.fsencode(spec.working_directory)
    arguments = [os.fsencode(text) for text in (spec.command, *spec.args)]
    environment = {os.fsencode(name): os.fsencode(setting) for name, setting in spec.environment.items()}
    return marshal.dumps((arguments, environment, directory, spec.pty, descriptor_limit_for_jobs()))


def _tame_terminal(descriptor: int) -> None:
    """Give a pseudo-terminal its size, let newlines pass unchanged, and end every read from it at once.

    Nobody types: a command that asks a question shall find the end of its input, not wait for its timeout.
    """
    attributes = termios.tcgetattr(descriptor)
    attributes[1] &= ~termios.ONLCR
    attributes[3] &= ~(termios.ICANON | termios.ECHO)
    attributes[6][termios.VMIN] = 0
    attributes[6][termios.VTIME] = 0
    termios.tcsetattr(descriptor, termios.TCSANOW, attributes)
    termios.tcsetwinsize(descriptor, (TERMINAL_ROWS, TERMINAL_COLUMNS))


async def _read_to_end(report: OutputPipe) -> str:
    text = b""
    while chunk := await report.read():
        text += chunk
    return text.decode()


def _exists(spec: ProcessSpec) -> bool:
    if "/" in spec.command:
        return Path(spec.working_directory or "", spec.command).exists()
    return shutil.which(spec.command, mode=0, path=spec.environment.get("PATH", "")) is not None


def _explain(spec: ProcessSpec, outcome: str) -> str:
    stage, _, number = outcome.partition(":")
    reason = int(number or 0)
    why = os.strerror(reason)
    if not number:
        return "the launcher ended before the command began"
    if stage == "directory":
        return f"cannot enter the working directory {spec.working_directory}: {why}"
    if stage != _STARTED:
        return f"cannot prepare the process ({stage}): {why}"
    if reason == errno.ENOENT and "/" not in spec.command:
        return f"command not found: {spec.command}"
    if reason == errno.ENOENT and Path(spec.working_directory or "", spec.command).exists():
        return f"the interpreter or loader that {spec.command} names does not exist"
    return f"cannot run {spec.command}: {why}"


def _watch_exit(pid: int, notice: Callable[[], None]) -> None:
    """Call `notice` on the running loop once the process has exited."""
    loop = asyncio.get_running_loop()

    def notice_by_descriptor() -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        notice()

    def notice_by_thread() -> None:
        # Reaped meanwhile, or its loop closed: nobody waits for it.
        with contextlib.suppress(ChildProcessError, RuntimeError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            loop.call_soon_threadsafe(notice)

    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # an old kernel, or a sandbox that does not know the call
        threading.Thread(target=notice_by_thread, name=f"exit-of-{pid}", daemon=True).start()
    else:
        loop.add_reader(descriptor, notice_by_descriptor)
