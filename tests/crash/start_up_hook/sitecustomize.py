"""What a Python process does first when this folder is on its PYTHONPATH: it lets a test fool it.

The file that FAULTS_FILE names is shared with the test: how many milliseconds the clock is wrong, and whether
the disk fails. The errors of the disk are made where SQLite calls the system, so that it deals with them as
with real ones.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
import time
from pathlib import Path
from typing import Any, Final

FAULTS: Final = struct.Struct("=qq")

_SIZED = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
_PLACED = (*_SIZED, ctypes.c_int64)
_CALLS = {"read": _SIZED, "write": _SIZED} | dict.fromkeys(
    ("pread", "pread64", "pwrite", "pwrite64"), _PLACED
)
_GET = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class _Vfs(ctypes.Structure):
    """How SQLite reaches the system; the last calls replace the others, for tests such as ours."""

    _fields_ = (
        ("numbers", ctypes.c_int * 3),
        ("pointers", ctypes.c_void_p * 3),
        ("calls", ctypes.c_void_p * 13),
        ("set_system_call", _SET),
        ("get_system_call", _GET),
    )


class _Faults:
    def __init__(self, path: str) -> None:
        with Path(path).open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), FAULTS.size)
        self._kept: list[Any] = []

    @property
    def clock_ms(self) -> int:
        return int(FAULTS.unpack_from(self._shared)[0])

    @property
    def disk_fails(self) -> bool:
        return bool(FAULTS.unpack_from(self._shared)[1])

    def change_clock(self) -> None:
        now, now_ns = time.time, time.time_ns
        time.time = lambda: now() + self.clock_ms / 1000
        time.time_ns = lambda: now_ns() + self.clock_ms * 1_000_000

    def change_disk(self) -> None:
        import _sqlite3

        library = ctypes.CDLL(_sqlite3.__file__)
        find = library.sqlite3_vfs_find
        find.restype = ctypes.POINTER(_Vfs)
        vfs = find(None)
        for name, arguments in _CALLS.items():
            self._change_call(vfs, name.encode(), arguments)

    def _change_call(self, vfs: Any, name: bytes, arguments: tuple[Any, ...]) -> None:
        kind = ctypes.CFUNCTYPE(ctypes.c_ssize_t, *arguments, use_errno=True)
        address = vfs.contents.get_system_call(ctypes.addressof(vfs.contents), name)
        if not address:
            return  # this SQLite has no use for it
        real = kind(address)

        def call(*given: Any) -> int:
            if self.disk_fails:
                ctypes.set_errno(errno.EIO)
                return -1
            return int(real(*given))

        ours = kind(call)
        self._kept.append(ours)
        vfs.contents.set_system_call(
            ctypes.addressof(vfs.contents), name, ctypes.cast(ours, ctypes.c_void_p).value
        )


if "FAULTS_FILE" in os.environ:
    _faults = _Faults(os.environ["FAULTS_FILE"])
    _faults.change_clock()
    _faults.change_disk()
