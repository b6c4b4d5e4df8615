"""How a drain is timed, the same for everyone: each process of a worker notes its first and its latest job.

A process has a file of its own, which it maps into memory: a job costs a lock, a clock and a few bytes, no
call of the system. The one who measures reads the files. Standard library only: the peers' environment has
nothing else in common with ours.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from dataclasses import dataclass
from pathlib import Path

# Names the folder of the files.
FOLDER_VARIABLE = "BENCH_TALLY"

# The number of jobs begun, and when the first and the latest of them were.
_FORM = struct.Struct("=Qdd")
_SUFFIX = ".tally"


@dataclass(frozen=True, slots=True)
class Tally:
    """What all processes together noted; the instants are those of the machine's monotonic clock."""

    jobs: int = 0
    first: float = 0
    latest: float = 0


class _Notes:
    """What this process notes; made with its first job, so that a child has its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs, self._first = 0, 0.0
        self._map: mmap.mmap | None = None

    def count(self) -> None:
        with self._lock:
            now = time.monotonic()
            self._map = self._map or self._open(now)
            self._jobs += 1
            _FORM.pack_into(self._map, 0, self._jobs, self._first, now)

    def _open(self, now: float) -> mmap.mmap:
        self._first = now
        path = Path(os.environ[FOLDER_VARIABLE]) / f"{os.getpid()}{_SUFFIX}"
        with path.open("w+b") as file:
            file.truncate(_FORM.size)
            return mmap.mmap(file.fileno(), _FORM.size)


_notes = _Notes()


def count() -> None:
    """Note that one more job was begun."""
    _notes.count()


def read(folder: Path) -> Tally:
    """Return what all processes have noted so far."""
    files = (file.read_bytes() for file in folder.glob(f"*{_SUFFIX}"))
    noted = [_FORM.unpack(content) for content in files if len(content) == _FORM.size]
    begun = [entry for entry in noted if entry[0]]
    if not begun:
        return Tally()
    jobs, first, latest = zip(*begun, strict=True)
    return Tally(sum(jobs), min(first), max(latest))
