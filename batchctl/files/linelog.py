"""The append-only result files: one writer, whole lines only, a tail that is repaired on every open.

A line counts when the state file says so; lines past that point are handed back, so that no answer is paid for twice.
"""

from __future__ import annotations

import os
import stat
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Self

import msgspec

from batchctl.core.errors import StorageError
from batchctl.files.durable import (
    FILE_MODE,
    make_folder,
    private,
    replace,
    storage,
    storage_error,
    sync_folder,
    write_all,
)
from batchctl.files.scan import scan_lines
from batchctl.files.spool import SpoolWriter, read_line

FLUSH_AT = 256 * 1024  # bytes gathered before they are handed to the kernel without being asked
COPY = 1 << 20
_CHECK = msgspec.json.Decoder(dict[str, object])


class LineLog:
    """A result file, open for appending.

    Attributes:
        end: offset after the last line appended.
        repaired: a line cut short by a crash was removed when it was opened.
        damaged: offsets (as found) of broken lines that were moved to `damaged_path`.
    """

    def __init__(self, path: Path, recorded: int) -> None:
        self.path = path
        self.damaged_path = path.with_name(f"{path.name}.damaged")
        self.repaired = False
        self.damaged: tuple[int, ...] = ()
        self._buffer = bytearray()
        self._failed: StorageError | None = None
        self._unsynced: StorageError | None = None
        self._recorded = recorded
        self._synced = -1  # end of what this object put on the disk
        make_folder(path.parent)
        self._settle_staged()
        self._handle = self._open()
        try:
            self._check_recorded()
            self._repair_tail()
        except BaseException:
            os.close(self._handle)
            raise
        self.end = self._tail_end = os.fstat(self._handle).st_size

    @classmethod
    def open(cls, path: Path, recorded: int) -> Self:
        """Open a result file and repair what a crash left at its end.

        Args:
            recorded: bytes of it that the state file counts.

        Raises:
            StorageError: it is missing or shorter than recorded, no regular file, or cannot be written.
        """
        return cls(path, recorded)

    def _open(self) -> int:
        create = 0 if self._recorded else os.O_CREAT
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | create, FILE_MODE)
        except FileNotFoundError:
            raise StorageError(
                f"{self.path} is missing, {self._recorded:,} bytes of it were recorded",
                hint="put it back, or `batchctl doctor --repair` fetches again what the provider still has",
            ) from None
        except OSError as error:
            if self.path.is_symlink() or (self.path.exists() and not self.path.is_file()):
                raise self._irregular() from None
            raise storage_error(self.path, error) from None
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise self._irregular()
        if create:
            sync_folder(self.path.parent)
        return handle

    def _irregular(self) -> StorageError:
        return StorageError(f"{self.path} is no regular file", hint="move it away, or choose another --out folder")

    def _check_recorded(self) -> None:
        size = os.fstat(self._handle).st_size
        if size < self._recorded:
            raise StorageError(
                f"{self.path} is shorter than recorded ({size:,} bytes of {self._recorded:,}): "
                "restored from an older copy, or cut",
                hint="put the newer copy back, or run `batchctl doctor`",
            )
        if self._recorded and os.pread(self._handle, 1, self._recorded - 1) != b"\n":
            raise StorageError(
                f"{self.path}: no line ends at byte {self._recorded:,}, where the recorded ones end",
                hint="it was changed by something else; put the right copy back, or run `batchctl doctor`",
            )

    def _repair_tail(self) -> None:
        """Leave only whole, valid lines: a torn last one goes, others are set aside (field report 166)."""
        kept = self._recorded  # end of the good lines that follow one another without a gap
        gap = False
        bad: list[int] = []
        last_is_bad = False
        for line in scan_lines(self.path, start=self._recorded):
            last_is_bad = not _is_good(line.raw)
            if last_is_bad:
                bad.append(line.offset)
            elif line.offset == kept:
                kept += len(line.raw) + 1
            else:
                gap = True
        if last_is_bad:
            bad.pop()
            self.repaired = True
        if bad or gap:
            self._set_aside(bad)
            self._rewrite(chain(self._recorded_lines(), self._good_tail()))
        else:
            self._cut_or_end(kept)

    def _cut_or_end(self, kept: int) -> None:
        """Drop what follows the last good line, or give that line the newline a crash kept from it."""
        size = os.fstat(self._handle).st_size
        if size == kept:
            return
        with storage(self.path):
            if size > kept:
                os.ftruncate(self._handle, kept)
            else:
                write_all(self._handle, b"\n")
            os.fsync(self._handle)

    def _set_aside(self, offsets: list[int]) -> None:
        if not offsets:
            return
        self.damaged = tuple(offsets)
        wanted = frozenset(offsets)
        with storage(self.damaged_path), open(self.damaged_path, "ab", opener=private) as file:
            for line in scan_lines(self.path, start=self._recorded):
                if line.offset in wanted:
                    entry = {"offset": line.offset, "line": line.raw.decode("utf-8", "backslashreplace")}
                    file.write(msgspec.json.encode(entry) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _recorded_lines(self) -> Iterator[bytes]:
        left = self._recorded
        with self.path.open("rb", COPY) as file:
            while left > 0:
                line = file.readline()
                left -= len(line)
                yield line[:-1]

    def _good_tail(self) -> Iterator[bytes]:
        return (line.raw for line in scan_lines(self.path, start=self._recorded) if _is_good(line.raw))

    def _rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the file by one of these lines, whole or not at all."""
        temporary = self.path.with_name(f".{self.path.name}.part")
        _write_lines(temporary, lines)
        with storage(self.path):
            replace(temporary, self.path)
        os.close(self._handle)
        self._handle = self._open()

    def tail(self) -> Iterator[tuple[int, int, bytes]]:
        """The lines past the recorded ones, as (offset, length, bytes) without newlines, as they were on opening."""
        for line in scan_lines(self.path, start=self._recorded):
            if line.offset >= self._tail_end:
                return
            yield line.offset, len(line.raw), line.raw

    def count_good(self) -> int:
        """How many lines of the whole file are JSON as it was written."""
        return sum(_is_good(line.raw) for line in scan_lines(self.path))

    def drop_tail(self) -> None:
        """Remove the lines past the recorded ones, because what they tell will be told again."""
        with storage(self.path):
            os.ftruncate(self._handle, self._recorded)
            os.fsync(self._handle)
        self.end = self._tail_end = self._recorded
        self._synced = -1

    def append(self, line: bytes) -> tuple[int, int]:
        """Add a line; returns its offset and length without the newline.

        Raises:
            StorageError: there is no room; what is not written yet stays in memory and goes with the next flush.
        """
        offset = self.end
        self._buffer += line
        self._buffer += b"\n"
        self.end = offset + len(line) + 1
        if len(self._buffer) >= FLUSH_AT:
            self.flush()
        return offset, len(line)

    def flush(self) -> None:
        """Hand all lines to the kernel in one write: from here on a killed process loses none."""
        while self._buffer:
            try:
                done = os.write(self._handle, self._buffer)
            except OSError as error:
                self._failed = storage_error(self.path, error)
                raise self._failed from None
            del self._buffer[:done]

    def sync(self) -> None:
        """Put all lines on the disk: from here on a power cut loses none.

        Raises:
            StorageError: the disk refused, now or before; the kernel drops what it could not write, so a later
                success would say nothing.
        """
        if self._unsynced is not None:
            raise self._unsynced
        self.flush()
        if self._synced == self.end:
            return
        try:
            os.fdatasync(self._handle)
        except OSError as error:
            self._failed = self._unsynced = storage_error(self.path, error)
            raise self._unsynced from None
        self._synced = self.end

    def stage(self, keep: Iterable[tuple[int, int]]) -> array[int]:
        """Write a file of some of these lines beside this one, whole and synced; `adopt` makes it this one.

        It takes effect in the moment the state file records its size: who opens the log after that adopts it, who
        opens it before that removes it. It must be shorter than what is recorded, so that the two cannot be mistaken.

        Args:
            keep: (offset, length without newline) of the lines to keep, in their new order.

        Returns:
            The new offset of each kept line, in the same order.
        """
        self.flush()
        with self.path.open("rb") as old:
            return _write_lines(staged_path(self.path), (read_line(old, offset, length) for offset, length in keep))

    def adopt(self) -> None:
        """Put the staged file, which the state file counts by now, in the place of this one."""
        with storage(self.path):
            replace(staged_path(self.path), self.path)
        os.close(self._handle)
        self._handle = self._open()
        self.end = self._tail_end = self._recorded = os.fstat(self._handle).st_size
        self._synced = -1

    def _settle_staged(self) -> None:
        """Finish or undo a `stage` whose process died."""
        with storage(staged_path(self.path)):
            if not staged_path(self.path).exists():
                return
            if staged_path(self.path).stat().st_size == self._recorded:
                replace(staged_path(self.path), self.path)
            else:
                staged_path(self.path).unlink()

    def close(self) -> None:
        """Write what is left and close; a failure that was raised before is not raised again."""
        try:
            if self._failed is None:
                self.flush()
        finally:
            os.close(self._handle)


def staged_path(path: Path) -> Path:
    """Where the file waits that is to take the place of a log."""
    return path.with_name(f".{path.name}.next")


def _write_lines(path: Path, lines: Iterable[bytes]) -> array[int]:
    """Write a file of these lines, synced; returns their offsets."""
    writer = SpoolWriter(path)
    offsets = array("q", (writer.append(line) for line in lines))
    writer.sync()
    writer.close()
    return offsets


def _is_good(raw: bytes) -> bool:
    try:
        _CHECK.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
