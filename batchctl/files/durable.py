"""The few moves that make a file change whole and lasting: private folders, folder sync, replace."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from batchctl.core.errors import StorageError

FILE_MODE = 0o600
FOLDER_MODE = 0o700

_HINTS = {
    errno.ENOSPC: "free space and run the same command again: it goes on where it stopped",
    errno.EDQUOT: "free some of the quota and run the same command again: it goes on where it stopped",
    errno.EFBIG: "lift the file size limit (ulimit -f) and run the same command again: it goes on where it stopped",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EACCES: "check the owner and permissions of the folder",
    errno.EPERM: "check the owner and permissions of the folder",
    errno.EMFILE: "too many open files: raise `ulimit -n`",
}


def storage_error(path: str | Path, error: OSError) -> StorageError:
    """An operating system error as ours, with the way out."""
    return StorageError(f"{path}: {error.strerror or error}", hint=_HINTS.get(error.errno or 0))


def named(error: OSError) -> StorageError | None:
    """An error that no place named (a full disk can show anywhere) as ours, or None where it says nothing to a user."""
    return storage_error(error.filename or "a file could not be written", error) if error.errno in _HINTS else None


@contextmanager
def storage(path: str | Path) -> Iterator[None]:
    """Turn operating system errors about `path` into StorageError."""
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from None


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents, each readable by its owner only."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    with storage(path):
        for folder in reversed(missing):
            folder.mkdir(FOLDER_MODE, exist_ok=True)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))


def private(path: str, flags: int) -> int:
    """An opener for files their owner only may read; a symbolic link is not followed."""
    return os.open(path, flags | os.O_NOFOLLOW, FILE_MODE)


def sync_folder(path: Path) -> None:
    """Put names created or replaced in a folder on the disk."""
    with storage(path):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def replace(temporary: Path, path: Path) -> None:
    """Give a finished, synced temporary file its name, lastingly."""
    temporary.replace(path)
    sync_folder(path.parent)


def write_all(handle: int, data: bytes | bytearray | memoryview) -> int:
    """Write all bytes; a kernel may take them in parts (a disk that is nearly full does)."""
    view = memoryview(data)
    done = 0
    while done < len(view):
        done += os.write(handle, view[done:])
    return done
