"""The program that ends what a dead worker's jobs left behind; never imported, only started by `reaper`.

It waits for the end of a pipe that only the worker holds open. Then it kills every process whose
environment carries the worker's mark, which all descendants of its jobs have inherited, those in sessions of
their own too.
Arguments: the descriptor of the pipe, the mark as NAME=value.
"""

from __future__ import annotations

import os
import signal
import sys
import time

_LIMIT_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
# Between a look and a kill a process may have forked: twice in a row nothing is found before it is over.
_EMPTY_PASSES = 2


def main() -> None:
    """Wait for the end of the worker, then sweep."""
    descriptor, mark = int(sys.argv[1]), sys.argv[2].encode()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Whatever ends the worker's group must not end the one who cleans up after it.
        signal.signal(number, signal.SIG_IGN)
    while os.read(descriptor, 1):
        pass
    sweep(mark)


def sweep(mark: bytes) -> None:
    """Kill all that carry the mark, until nobody does."""
    empty, deadline = 0, time.monotonic() + _LIMIT_SECONDS
    while empty < _EMPTY_PASSES and time.monotonic() < deadline:
        empty = 0 if _kill_marked(mark) else empty + 1
        time.sleep(_PAUSE_SECONDS)


def _kill_marked(mark: bytes) -> int:
    found = 0
    for name in os.listdir("/proc"):  # noqa: PTH208  pathlib takes long to load
        if name.isdigit() and _is_marked(name, mark):
            found += 1
            try:
                os.kill(int(name), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                found -= 1
    return found


def _is_marked(pid: str, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as environ:  # noqa: PTH123  same
            return mark in environ.read().split(b"\0")
    except OSError:  # gone, a zombie, or another user's
        return False


if __name__ == "__main__":
    main()
