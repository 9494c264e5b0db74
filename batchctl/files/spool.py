"""The spool: request lines appended once, read back as slices in constant memory. It is what providers are sent."""

from __future__ import annotations

import io
import os
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from batchctl.core.errors import StorageError
from batchctl.files.durable import make_folder, private, storage, sync_folder

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

WRITE_BUFFER = 256 * 1024
READ_BUFFER = 1 << 20


class SpoolWriter:
    """Writes a file of lines; what was there before is replaced, or with `append` followed.

    Lines go straight into a buffer: gathering them in lists makes the same work twice as slow.
    """

    def __init__(self, path: Path, *, append: bool = False) -> None:
        self.path = path
        make_folder(path.parent)
        with storage(path):
            self._file = open(path, "ab" if append else "wb", WRITE_BUFFER, opener=private)  # noqa: SIM115  # close()
            self.size = self._file.tell()
        self._write = self._file.write

    def append(self, line: bytes) -> int:
        """Add a line (without its newline) and return its offset.

        Raises:
            StorageError: it could not be written.
        """
        offset = self.size
        try:
            self._write(line)
            self._write(b"\n")
        except OSError as error:
            with storage(self.path):
                raise error from None
        self.size = offset + len(line) + 1
        return offset

    def append_lines(self, lines: list[bytes]) -> int:
        """Add lines, each with its newline, and return the offset of the first.

        Raises:
            StorageError: they could not be written.
        """
        offset = self.size
        with storage(self.path):
            self._file.writelines(lines)
        self.size = offset + sum(map(len, lines))
        return offset

    def sync(self) -> None:
        """Put everything on the disk."""
        with storage(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())
            sync_folder(self.path.parent)

    def close(self) -> None:
        """Close the file; what was not synced may not be written."""
        with storage(self.path):
            self._file.close()


def read_line(file: IO[bytes], offset: int, length: int) -> bytes:
    """The line at an offset, without its newline; the file's own position stays.

    Raises:
        StorageError: the file ends before the line does.
    """
    data = os.pread(file.fileno(), length, offset)
    if len(data) != length:
        raise StorageError(
            f"{file.name}: {length} bytes at {offset} were recorded, {len(data)} are there",
            hint="the file was cut or restored from an older copy; run `batchctl doctor`",
        )
    return data


def open_spool(path: Path) -> IO[bytes]:
    """Open a spool to read single lines from it.

    Raises:
        StorageError: it is missing or cannot be read.
    """
    with _spool_errors(path):
        return path.open("rb", buffering=0)


@contextmanager
def _spool_errors(path: Path) -> Iterator[None]:
    try:
        with storage(path):
            yield
    except StorageError as error:
        if path.exists():
            raise
        raise StorageError(
            f"{path} is missing: the requests of open items stand in it", hint="`batchctl doctor` says what can be done"
        ) from error


class SpoolMender:
    """Reads lines of a spool that may be damaged or gone, and writes them again in their places.

    Args:
        create: make the file where it is missing, and let lines be written; without it a missing one is empty.
    """

    def __init__(self, path: Path, *, create: bool) -> None:
        self.path = path
        with storage(path):
            if create:
                make_folder(path.parent)
                self._handle = private(str(path), os.O_RDWR | os.O_CREAT)
            else:
                self._handle = private(str(path) if path.exists() else os.devnull, os.O_RDONLY)

    def line(self, offset: int, length: int) -> bytes | None:
        """The line at an offset, without its newline; None where no line of that length is there."""
        with storage(self.path):
            data = os.pread(self._handle, length + 1, offset)
        return data[:-1] if len(data) == length + 1 and data.endswith(b"\n") else None

    def put(self, offset: int, line: bytes) -> None:
        """Write a line and its newline at an offset; what lies between lines that were never written is empty."""
        with storage(self.path):
            view = memoryview(line + b"\n")
            while view:
                done = os.pwrite(self._handle, view, offset)
                view, offset = view[done:], offset + done

    def sync(self) -> None:
        """Put everything on the disk."""
        with storage(self.path):
            os.fsync(self._handle)
            sync_folder(self.path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._handle)


class _Slices(io.RawIOBase):
    """Ranges of a file, one after another, as one seekable stream."""

    def __init__(self, path: Path, ranges: Iterable[tuple[int, int]]) -> None:
        super().__init__()
        self._offsets = array("q")
        self._ends = array("q")  # end of each range in the stream
        self._position = 0
        self._add(ranges)
        self.size = self._ends[-1] if self._ends else 0
        self.name = str(path)
        with _spool_errors(path):
            self._handle = os.open(path, os.O_RDONLY)

    def _add(self, ranges: Iterable[tuple[int, int]]) -> None:
        total, last = 0, -1
        for offset, length in ranges:
            if not length:
                continue
            total += length
            if offset == last:
                self._ends[-1] = total
            else:
                self._offsets.append(offset)
                self._ends.append(total)
            last = offset + length

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.size}[whence]
        if base + offset < 0:
            raise ValueError("negative position")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view) and self._position < self.size:
            got = self._read_at(view[filled:])
            filled += got
            self._position += got
        return filled

    def _read_at(self, view: memoryview) -> int:
        """Read from one range; short lines far apart are gathered by the caller."""
        index = bisect_right(self._ends, self._position)
        left = self._ends[index] - self._position
        before = self._ends[index - 1] if index else 0
        got = os.preadv(self._handle, [view[:left]], self._offsets[index] + self._position - before)
        if not got:
            raise StorageError(
                f"{self.name} is shorter than recorded",
                hint="it was cut or restored from an older copy; run `batchctl doctor`",
            )
        return got

    def close(self) -> None:
        if not self.closed:
            os.close(self._handle)
        super().close()


def open_slices(path: Path, ranges: Iterable[tuple[int, int]]) -> IO[bytes]:
    r"""Open ranges of a file as one binary, seekable, read-only stream.

    Args:
        ranges: (offset, length) of each line with its `\\n`; neighbours are joined, 16 bytes are kept for each gap.

    Raises:
        StorageError: the file is missing, or (on reading) shorter than the ranges say.
    """
    return io.BufferedReader(_Slices(path, ranges), READ_BUFFER)
