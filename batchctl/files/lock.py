"""One kernel lock per run: the second process is refused at once, and a dead holder leaves no lock."""

from __future__ import annotations

import errno
import fcntl
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

import msgspec

from batchctl.core.errors import HeldError, StorageError
from batchctl.files.durable import FILE_MODE, make_folder, storage

_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class RunLock:
    """Holds a run while the block runs; its folder is made where it is missing.

    Raises:
        HeldError: (on entering) another process holds it, or this one does already.
        StorageError: (on entering) the lock file cannot be made, or the file system knows no locks.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle = -1

    def __enter__(self) -> Self:
        make_folder(self.path.parent)
        while True:
            with storage(self.path):
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE)
            try:
                self._lock(handle)
                if self._is_current(handle):
                    os.ftruncate(handle, 0)
                    os.pwrite(handle, _card(), 0)
                    self._handle = handle
                    return self
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)

    def _lock(self, handle: int) -> None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HeldError(
                f"run {self.path.parent.name} is held by {_holder(handle)}",
                hint="wait for it to end; a process that died holds nothing",
            ) from None
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise StorageError(
                    f"{self.path}: this file system knows no locks", hint="put --state on a local disk"
                ) from None
            raise

    def _is_current(self, handle: int) -> bool:
        """Whether the locked file still is the one under its name; its last holder may have removed it."""
        try:
            return os.path.samestat(self.path.stat(), os.fstat(handle))
        except FileNotFoundError:
            return False

    def __exit__(self, *exc: object) -> None:
        os.close(self._handle)
        self._handle = -1


def _card() -> bytes:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return msgspec.json.encode({"pid": os.getpid(), "since": now}) + b"\n"


def _holder(handle: int) -> str:
    try:
        card = msgspec.json.decode(os.pread(handle, 1000, 0), type=dict[str, str | int])
        return f"process {card['pid']} since {card['since']}"
    except (msgspec.DecodeError, KeyError):
        return "another process"
