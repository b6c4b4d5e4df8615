"""Standard input that nobody would read."""

from __future__ import annotations

import array
import fcntl
import os
import stat
import sys
import termios
from typing import Final

STANDARD_INPUT: Final = 0


def refuse_piped_input() -> None:
    """Refuse what was piped in: a job reads an empty standard input, so it would be lost without a word.

    Only data that is there already counts, and nobody waits for any: a terminal, /dev/null, an empty file, a
    closed descriptor, or a pipe that is open and silent, as services and CI runners have it, are let be.
    """
    from airunner.domain.errors import InvalidArgument

    # None stands for a descriptor that was closed, and whose number may be that of anything by now.
    if sys.stdin is not None and has_data(STANDARD_INPUT):
        raise InvalidArgument(
            "there is data on standard input, and a job cannot read it: put it into the command, as in "
            "-- sh -c 'SCRIPT', or into a file; add </dev/null if it is not meant for the job"
        )


def has_data(descriptor: int) -> bool:
    """Return whether a file, pipe or socket has something to read now; of anything else, that it has not."""
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return status.st_size > os.lseek(descriptor, 0, os.SEEK_CUR)
        if not (stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
            return False
        waiting = array.array("i", [0])
        fcntl.ioctl(descriptor, termios.FIONREAD, waiting)
        return waiting[0] > 0
    except OSError:
        return False
