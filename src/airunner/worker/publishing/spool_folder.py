"""The folder of spool files: permissions, locks, and what dead workers left there."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from airunner.worker.file_lock import lock_file
from airunner.worker.publishing.spool_records import read_records

_FILE: Final = re.compile(r"(?P<job_id>[^/]+)\.(?P<attempt>\d+)\.spool")
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """The readable content of a file whose worker is gone; part of it may be published."""

    job_id: str
    attempt: int
    events: int
    size_bytes: int


class SpoolFolder:
    """A folder that only we write to, shared by the workers of one user on one machine.

    A file is locked for as long as its attempt uses it; the lock goes with the process, however that ends.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Use a folder; without a path, one of this user's below the system's folder for temporary files."""
        self.path = path or Path(tempfile.gettempdir()) / f"airunner-spool-{os.getuid()}"

    def create(self, job_id: str, attempt: int) -> int:
        """Return the descriptor of an attempt's new file, locked; OSError if there cannot be one."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with self._opened() as folder:
            descriptor = os.open(_name(job_id, attempt), flags, 0o600, dir_fd=folder)
        try:
            lock_file(descriptor)
        except OSError:
            # A worker that starts just now was quicker, and took the file for one that was left behind.
            os.close(descriptor)
            raise
        return descriptor

    def remove(self, job_id: str, attempt: int) -> None:
        """Remove an attempt's file, be it there or not."""
        with suppress(OSError), self._opened() as folder:
            os.unlink(_name(job_id, attempt), dir_fd=folder)

    def sweep(self) -> list[Leftover]:
        """Remove the files that nobody uses and return what they held; OSError if others may write there.

        Safe beside other workers, and beside others that sweep. It reads what it removes: not for the loop.
        """
        try:
            with self._opened() as folder:
                swept = [_sweep(folder, name) for name in sorted(os.listdir(folder))]  # noqa: PTH208  the folder that was looked at, not its name
        except FileNotFoundError:
            return []
        return [leftover for leftover in swept if leftover]

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Give a descriptor of the folder, once it is certain that nobody else can put anything there."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            status = os.fstat(folder)
            if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
                raise PermissionError(0, "others may write to the folder", str(self.path))
            yield folder
        finally:
            os.close(folder)


def _name(job_id: str, attempt: int) -> str:
    return f"{quote(job_id, safe='')}.{attempt}.spool"


def _sweep(folder: int, name: str) -> Leftover | None:
    """Remove one file, unless it is in use or none of ours."""
    match = _FILE.fullmatch(name)
    if not match:
        return None
    try:
        descriptor = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            lock_file(descriptor)
        except OSError:
            return None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        events = sum(record.last_sequence - record.first_sequence + 1 for record in read_records(file))
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
    return Leftover(
        job_id=unquote(match["job_id"]),
        attempt=int(match["attempt"]),
        events=events,
        size_bytes=status.st_size,
    )
