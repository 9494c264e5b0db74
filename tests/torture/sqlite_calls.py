"""SQLite's own writes, struck below Python: its library asks for every system call through a table that can be changed.

Where Python carries a SQLite of its own inside, there is no such library to find, and nothing is struck.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITES = (b"write", b"pwrite", b"pwrite64")
_WRITE = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, use_errno=True)
_PWRITE = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, use_errno=True
)
_kept: list[Any] = []  # what C code points at must not be collected


class _Vfs(ctypes.Structure):
    _fields_ = [
        ("iVersion", ctypes.c_int),
        ("szOsFile", ctypes.c_int),
        ("mxPathname", ctypes.c_int),
        ("pNext", ctypes.c_void_p),
        ("zName", ctypes.c_char_p),
        ("pAppData", ctypes.c_void_p),
        *((name, ctypes.c_void_p) for name in ("xOpen", "xDelete", "xAccess", "xFullPathname")),
        *((name, ctypes.c_void_p) for name in ("xDlOpen", "xDlError", "xDlSym", "xDlClose")),
        *((name, ctypes.c_void_p) for name in ("xRandomness", "xSleep", "xCurrentTime", "xGetLastError")),
        ("xCurrentTimeInt64", ctypes.c_void_p),
        (
            "xSetSystemCall",
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
        ),
        ("xGetSystemCall", ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)),
    ]


def strike_sqlite(hit: Callable[[], bool], how: str, die: Callable[[], None]) -> bool:
    """Let `hit` decide at each write whether it is struck; false where the library cannot be reached."""
    path = _library()
    if path is None:
        return False
    find = ctypes.CDLL(path).sqlite3_vfs_find
    find.restype = ctypes.POINTER(_Vfs)
    find.argtypes = [ctypes.c_char_p]
    vfs = find(None)
    for name in WRITES:
        real = vfs.contents.xGetSystemCall(vfs, name)
        if real:
            struck = _struck(real, hit, how, die, at=name != b"write")
            vfs.contents.xSetSystemCall(vfs, name, ctypes.cast(struck, ctypes.c_void_p))
    return True


def _library() -> str | None:
    """The file of the SQLite that this process has loaded."""
    with Path("/proc/self/maps").open(encoding="utf-8") as maps:
        paths = {line.split()[-1] for line in maps if "libsqlite3" in line}
    return min(paths, default=None)


def _struck(real: int, hit: Callable[[], bool], how: str, die: Callable[[], None], *, at: bool) -> Any:
    kind = _PWRITE if at else _WRITE
    call = kind(real)

    def write(handle: int, data: int, size: int, *offset: int) -> int:
        if not hit():
            return int(call(handle, data, size, *offset))
        if how == "full":
            ctypes.set_errno(errno.ENOSPC)
            return -1
        if how != "before":
            call(handle, data, size if how == "after" else size // 2, *offset)
            os.fsync(handle)
        die()
        return -1

    wrapped = kind(write)
    _kept.append((call, wrapped))
    return wrapped
