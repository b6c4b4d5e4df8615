"""The folders in which jobs work: made for one attempt, removed after it, swept when their worker died."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from airunner import telemetry
from airunner.telemetry.logs import get_logger
from airunner.worker.file_lock import lock_file

_log = get_logger("airunner.worker")

_PREFIX: Final = "airunner-"
_LOCK_NAME: Final = re.compile(r"(?P<folder>airunner-[0-9a-f]{16})\.lock")
_LOCK_SUFFIX: Final = ".lock"
_LOCK_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_TRIES: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkFolder:
    """A folder, and the descriptor of the locked file beside it; -1 where locks are unknown."""

    path: Path
    lock: int

    @property
    def lock_path(self) -> Path:
        """The file that is locked for as long as the folder's worker lives."""
        return self.path.with_name(self.path.name + _LOCK_SUFFIX)


class WorkFolders:
    """Makes and removes the folders of one worker, and removes those of others that died.

    Beside each folder is a file that its worker has locked. A folder without one is never touched.
    """

    def __init__(self, parent: Path | None = None) -> None:
        self._parent = parent
        self._told: set[str] = set()

    def make(self) -> WorkFolder:
        """Return a new folder; OSError if there cannot be one."""
        folder = self._locked_name()
        try:
            folder.path.mkdir(mode=0o700)
        except OSError:
            _unlock(folder)
            raise
        return folder

    def remove(self, *folders: WorkFolder) -> None:
        """Remove folders of ours and all in them; what cannot be removed is logged, and left to sweepers."""
        for folder in folders:
            if self._removed(folder.path):
                _unlock(folder)
            elif folder.lock >= 0:
                os.close(folder.lock)

    def sweep(self) -> list[Path]:
        """Remove the folders whose workers are dead, and return them.

        Safe beside living workers, and beside others that sweep. It takes as long as the removing does.
        """
        try:
            names = sorted(os.listdir(self._where()))  # noqa: PTH208  names are all that is needed
        except OSError:  # jobs that need a folder there say so
            return []
        matches = [match for name in names if (match := _LOCK_NAME.fullmatch(name))]
        return [path for match in matches if (path := self._sweep(self._where() / match["folder"]))]

    def _where(self) -> Path:
        return self._parent or Path(tempfile.gettempdir())

    def _locked_name(self) -> WorkFolder:
        """Return a folder that is still to be made, with its lock."""
        for _ in range(_TRIES):
            folder = WorkFolder(path=self._where() / f"{_PREFIX}{secrets.token_hex(8)}", lock=-1)
            lock = os.open(folder.lock_path, _LOCK_FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                lock_file(lock)
            except (BlockingIOError, FileNotFoundError):
                # Somebody who sweeps just now was quicker, and took it for one that was left behind.
                os.close(lock)
            except OSError:  # there are no locks here, so nobody sweeps either
                os.close(lock)
                _unlock(folder)
                return folder
            else:
                return replace(folder, lock=lock)
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def _sweep(self, path: Path) -> Path | None:
        folder = WorkFolder(path=path, lock=-1)
        try:
            lock = os.open(folder.lock_path, _LOCK_FLAGS)
        except OSError:
            return None
        try:
            status = os.fstat(lock)
            if status.st_uid != os.geteuid() or not stat.S_ISREG(status.st_mode):
                return None
            lock_file(lock)
            was_there = path.exists()
            if not self._removed(path):
                return None
            folder.lock_path.unlink(missing_ok=True)
        except OSError:  # in use, or not ours to remove
            return None
        else:
            return path if was_there else None
        finally:
            os.close(lock)

    def _removed(self, path: Path) -> bool:
        """Remove a tree; return whether it is gone. What stays is counted, and told once."""
        remove_tree(path)
        if not os.path.lexists(path):
            return True
        telemetry.folders_not_removed.add(1)
        if path.name not in self._told:
            self._told.add(path.name)
            _log.warning("work_folder.not_removed", folder=str(path))
        return False


def remove_tree(path: Path) -> None:
    """Remove a folder and all in it, read-only folders included, as far as that is possible. Never raises."""
    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path):
        with suppress(OSError):
            _make_writable(path)
        shutil.rmtree(path, ignore_errors=True)


def _unlock(folder: WorkFolder) -> None:
    with suppress(OSError):
        folder.lock_path.unlink(missing_ok=True)
    if folder.lock >= 0:
        os.close(folder.lock)


def _make_writable(top: Path) -> None:
    """Let the owner change all folders of a tree, each before it is looked into."""
    _let_owner_change(str(top))
    for folder, names, _ in os.walk(top):
        for name in names:
            with suppress(OSError):
                _let_owner_change(os.path.join(folder, name))  # noqa: PTH118  a tree may be large


def _let_owner_change(folder: str) -> None:
    mode = os.lstat(folder).st_mode
    if stat.S_ISDIR(mode) and (mode & stat.S_IRWXU) != stat.S_IRWXU:
        os.chmod(folder, stat.S_IMODE(mode) | stat.S_IRWXU)  # noqa: PTH101  same
