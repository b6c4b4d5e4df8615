"""Locks that say whether the owner of a file lives: they go with its process, however that ends.

They hold between containers that share a folder, too, where process ids mean nothing.
"""

from __future__ import annotations

import fcntl
import os


def lock_file(descriptor: int) -> None:
    """Lock a file that is still there; OSError if somebody else has it, or removed it meanwhile."""
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if not os.fstat(descriptor).st_nlink:
        raise FileNotFoundError(0, "the file was removed")
