"""Keeping the secrets of a program that runs jobs out of the reach of those jobs.

Jobs run as the worker's user. What a program of that user was started with, its memory and its open files
are theirs to read below /proc, unless the kernel is told otherwise.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airunner.config import environment_handing_over, exposed_secrets, take_over_secrets
from airunner.telemetry.logs import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_log = get_logger("airunner.worker")

_PR_SET_DUMPABLE: Final = 4
_KEY_OPTION: Final = "--api-key"
_KEY_VARIABLE: Final = "AIRUNNER_API_KEY"
_KEY_VARIABLES: Final = (_KEY_VARIABLE, "AIRUNNER_CLIENT__API_KEY")
_READ_BY_OTHERS: Final = stat.S_IRGRP | stat.S_IROTH


def conceal_secrets() -> None:
    """Hold no secret where other processes of this user can read it; OSError if that cannot be had.

    With secrets in its environment or its arguments the program is started again without them, under the same
    process id; call this first of all. From then on the kernel shows its memory, its environment and its
    descriptors to root only, and writes no core dump of it.
    """
    take_over_secrets()
    secrets = exposed_secrets()
    arguments, key = without_key(sys.orig_argv[1:])
    if key:
        # An option counts more than a variable, whichever name that has.
        secrets = {name: text for name, text in secrets.items() if name not in _KEY_VARIABLES}
        secrets[_KEY_VARIABLE] = key
    try:
        if secrets:
            environment = environment_handing_over(secrets)
            os.execve(sys.executable, [sys.executable, *arguments], environment)  # noqa: S606  this program
    finally:
        _keep_others_out()


def without_key(arguments: Sequence[str]) -> tuple[list[str], str]:
    """Return the arguments without the API key among them, and that key; empty if there is none."""
    kept, key = list(arguments), ""
    for index, word in enumerate(arguments):
        if word.startswith(f"{_KEY_OPTION}="):
            key = word.partition("=")[2]
            kept[index : index + 1] = []
            break
        if word == _KEY_OPTION and index + 1 < len(arguments):
            key = arguments[index + 1]
            kept[index : index + 2] = []
            break
    return (kept, key) if key else (list(arguments), "")


def warn_of_exposure(key: str, key_file: Path | None) -> None:
    """Log in which ways the jobs of this worker can learn its API key all the same."""
    if os.geteuid() == 0:
        _log.warning("worker.runs_as_root", hint="jobs can read all that the worker has; give it a user")
        return
    if key_file:
        _warn_of_file(key_file)
    for pid in _holders_above(key.encode()) if key else ():
        _log.warning("worker.key_exposed", pid=pid, hint="this process, which started the worker, shows it")


def _keep_others_out() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _warn_of_file(path: Path) -> None:
    try:
        others = path.stat().st_mode & _READ_BY_OTHERS
    except OSError:
        return
    hint = f"{'other users, and jobs' if others else 'jobs'} can read it; use AIRUNNER_API_KEY"
    _log.warning("worker.key_file_readable", file=str(path), hint=hint)


def _holders_above(key: bytes) -> Iterator[int]:
    """Yield the processes that started this one and show the key to processes of this user."""
    pid = os.getppid()
    while pid > 1:
        try:
            shown = b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))
            if key in shown:
                yield pid
        except OSError:
            pass  # it is not for us to read, and so not for our jobs
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return
