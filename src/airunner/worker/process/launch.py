"""The program that becomes a job's command; never imported, only started by `airunner.worker.process.spawn`.

It does what must happen inside the new process, between fork and exec: asking for the parent-death signal,
resetting signals and limits, taking the terminal. Code in the forked copy of a worker with threads could
deadlock there, and forking a large worker stalls its event loop; a program of its own does neither.

It is on the way of every process, so it imports only what loads quickly, which `signal` does not.
Arguments: the descriptor of the marshalled order, the descriptor to report on, the worker's process id.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import sys

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_SIG_SETMASK = 2
_LAST_SIGNAL = 64
_SIGSET_BYTES = 128


def main() -> None:
    """Become the ordered command, or report why not as `stage:errno`.

    The descriptor to report on is closed by the exec itself: `command` and then the end says that it runs.
    """
    order_descriptor, report_descriptor, worker_pid = map(int, sys.argv[1:4])
    os.set_inheritable(report_descriptor, False)
    with os.fdopen(order_descriptor, "rb") as order_file:
        order = marshal.load(order_file)  # noqa: S302 - ours
    arguments, environment, working_directory, is_terminal, descriptor_limit = order
    stage = b"guard"
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        _die_with(worker_pid, libc)
        _reset_signals(libc)
        stage = b"limits"
        if descriptor_limit is not None:
            _limit_descriptors(descriptor_limit)
        stage = b"terminal"
        if is_terminal:
            _take_terminal()
        stage = b"directory"
        if working_directory is not None:
            os.chdir(working_directory)
        stage = b"command"
        os.write(report_descriptor, stage)
        os.execvpe(arguments[0], arguments, environment)  # noqa: S606 - no shell on purpose
    except OSError as error:
        already_told = stage == b"command"
        os.write(report_descriptor, b"%s:%d" % (b"" if already_told else stage, error.errno or 0))


def _die_with(worker_pid: int, libc: ctypes.CDLL) -> None:
    if libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    # The worker may have died before the request was made: nobody would send the signal then.
    if os.getppid() != worker_pid:
        os.kill(os.getpid(), _SIGKILL)


def _reset_signals(libc: ctypes.CDLL) -> None:
    """Undo what the worker, nohup or this interpreter ignore or block; a command expects the defaults."""
    for number in range(1, _LAST_SIGNAL + 1):
        libc.signal(number, None)
    libc.sigprocmask(_SIG_SETMASK, bytes(_SIGSET_BYTES), None)


def _limit_descriptors(soft: int) -> None:
    """Give the command the limit that the worker was started with, not the one that it raised for itself."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or soft <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _take_terminal() -> None:
    """Make standard output the controlling terminal of this new session."""
    import fcntl
    import termios

    fcntl.ioctl(sys.stdout.fileno(), termios.TIOCSCTTY, 0)


if __name__ == "__main__":
    main()
