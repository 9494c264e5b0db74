"""Opens an input as a stream of UTF-8 bytes: decompressed, without BOM, counted and hashed as it is read."""

from __future__ import annotations

import codecs
import hashlib
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from batchctl.core.errors import InputError
from batchctl.files.unpacking import Blocks, compression, decompressor

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BUFFER = 1 << 17  # larger pieces of memory are given back and faulted in again each time, which costs more
HEAD = 6  # bytes that tell compression and encoding


class _Head(io.RawIOBase):
    """A raw stream whose first bytes can be looked at before they are read."""

    def __init__(self, fill: Callable[[memoryview], int | None]) -> None:
        super().__init__()
        self._fill = fill
        self._held = b""

    def head(self, size: int) -> bytes:
        """The first bytes, fewer only at the end of the stream; a pipe is read no further than that."""
        while len(self._held) < size:
            block = bytearray(size - len(self._held))
            got = self._fill(memoryview(block))
            if not got:
                break
            self._held += block[:got]
        return self._held

    def skip(self, size: int) -> None:
        """Drop bytes that were looked at."""
        self._held = self._held[size:]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        if not self._held:
            return self._fill(view) or 0
        size = min(len(view), len(self._held))
        view[:size] = self._held[:size]
        self._held = self._held[size:]
        return size


class Opened:
    """An input file, open for one reading.

    Args:
        path: file, FIFO, or `-` for standard input.

    Raises:
        InputError: it cannot be opened, is empty, or is in no encoding we read.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._stack = ExitStack()
        self._digest = hashlib.sha256()
        self.bytes_read = 0
        self.modified_ns = 0
        self._source = self._open()
        try:
            self.stream = self._layers()
        except BaseException:
            self.close()
            raise

    def _open(self) -> Any:
        if self._path == "-":
            if sys.stdin is None:
                raise InputError("standard input is closed", hint="name a file, or pipe the items in")
            return getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)  # no lock that a thread could hold at exit
        try:
            file = self._stack.enter_context(Path(self._path).open("rb", buffering=0))  # noqa: SIM115  # close() closes
        except OSError as error:
            raise unreadable(self._path, error) from None
        self.modified_ns = os.fstat(file.fileno()).st_mtime_ns
        return file

    def _fill(self, view: memoryview) -> int:
        source = self._source
        try:
            got: int = source.readinto1(view) if hasattr(source, "readinto1") else source.readinto(view)
        except OSError as error:
            raise unreadable(self._path, error) from None
        if got:
            self.bytes_read += got
            self._digest.update(view[:got])
        return got

    def _layers(self) -> io.BufferedReader:
        raw = _Head(self._fill)
        head = raw.head(HEAD)
        if not head:
            raise empty(self._path)
        kind = compression(head)
        if kind is not None:
            raw = _Head(decompressor(kind, io.BufferedReader(raw, BUFFER), self._path))
            head = raw.head(HEAD)
        return io.BufferedReader(self._as_utf8(raw, head), BUFFER)

    def _as_utf8(self, raw: _Head, head: bytes) -> io.RawIOBase:
        if head.startswith(codecs.BOM_UTF8):
            raw.skip(len(codecs.BOM_UTF8))
            return raw
        if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)) or (
            b"\0" in head[:4] and not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        ):
            raise InputError(
                f"{self._path}: not UTF-8: there is a zero byte among the first four",
                hint="save it as UTF-8, or as UTF-16 with a byte-order mark",
            )
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return _Head(_transcoder(io.BufferedReader(raw, BUFFER), self._path))
        return raw

    def finish(self) -> str:
        """Read what a decompressor left and return the SHA-256 of the raw bytes, in hex."""
        block = memoryview(bytearray(BUFFER))
        while self._fill(block):
            pass
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def check_readable(path: str) -> None:
    """Refuse what can be seen to be no input before anything is read.

    Raises:
        InputError: no such file, a folder, no permission, or an empty file.
    """
    if path == "-":
        return
    try:
        about = Path(path).stat()
    except OSError as error:
        raise unreadable(path, error) from None
    if stat.S_ISDIR(about.st_mode):
        raise InputError(f"{path} is a folder", hint="name the files in it")
    if not os.access(path, os.R_OK):
        raise unreadable(path, PermissionError(13, "Permission denied"))
    if stat.S_ISREG(about.st_mode) and not about.st_size:
        raise empty(path)


def unreadable(path: str, error: OSError) -> InputError:
    """The refusal of a file that cannot be opened."""
    hint = {
        FileNotFoundError: "check the path; it is taken from the current folder",
        PermissionError: "check the owner and permissions of the file",
    }.get(type(error))
    return InputError(f"{path}: {error.strerror or error}", hint=hint)


def empty(path: str) -> InputError:
    """The refusal of an input without a byte."""
    return InputError(f"{path} is empty: it has no items", hint="check what was to write it")


def digest(path: str) -> tuple[int, str]:
    """Size in bytes and SHA-256 (hex) of an input as it is stored; `-` is read to its end.

    Raises:
        InputError: it cannot be read.
    """
    if path == "-":
        return _digest_of(sys.stdin.buffer)
    try:
        with Path(path).open("rb", buffering=0) as file:
            return _digest_of(file)
    except OSError as error:
        raise unreadable(path, error) from None


def _digest_of(file: Any) -> tuple[int, str]:
    sha, size, block = hashlib.sha256(), 0, memoryview(bytearray(BUFFER))
    while got := file.readinto(block):
        sha.update(block[:got])
        size += got
    return size, sha.hexdigest()


def _transcoder(wide: io.BufferedReader, path: str) -> Callable[[memoryview], int]:
    """A function that fills a buffer with UTF-8 made from UTF-16; its byte-order mark goes.

    Raises:
        InputError: from the function: bytes that are no UTF-16.
    """

    def blocks() -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder("utf-16")()
        before = 0
        while data := wide.read1(BUFFER):
            yield decoded(decoder, data, before)
            before += len(data)
        yield decoded(decoder, b"", before)

    def decoded(decoder: codecs.IncrementalDecoder, data: bytes, before: int) -> bytes:
        held = len(decoder.getstate()[0])
        try:
            return decoder.decode(data, final=not data).encode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}: not UTF-16 at byte {before - held + error.start + 1}: {error.reason}",
                hint="save it as UTF-8",
            ) from None

    return Blocks(blocks()).fill
