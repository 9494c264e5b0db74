"""Decompresses gzip, bzip2, xz and zstd as a stream; data that is cut short is an error, never a shorter list.

A compression bomb does no harm: data is only ever decompressed a buffer at a time, and no reader holds more of a line
than its limit.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from batchctl.core.errors import InputError

ZSTD_CHUNK = 512  # compressed bytes a step; a block of 4 bytes can grow to 128 KiB, so a step makes 16 MiB at most

MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
)


def compression(head: bytes) -> str | None:
    """The compression that a file's first bytes tell."""
    return next((name for magic, name in MAGIC if head.startswith(magic)), None)


def decompressor(kind: str, packed: io.BufferedReader, path: str) -> Callable[[memoryview], int]:
    """A function that fills a buffer with decompressed bytes.

    Raises:
        InputError: from the function: the data is damaged or cut short.
    """
    import bz2
    import gzip
    import lzma

    if kind == "zstd":
        return _guarded(Blocks(_zstd_blocks(packed, path)).fill, kind, path)
    file: Any = None
    if kind == "gzip":
        file = gzip.GzipFile(fileobj=packed)
    else:
        file = {"bzip2": bz2.BZ2File, "xz": lzma.LZMAFile}[kind](packed)
    return _guarded(file.readinto1, kind, path)


def _guarded(fill: Callable[[memoryview], int], kind: str, path: str) -> Callable[[memoryview], int]:
    import lzma

    def fill_or_refuse(view: memoryview) -> int:
        try:
            return fill(view)
        except (EOFError, OSError, zlib.error, lzma.LZMAError, _DamagedError) as error:
            raise InputError(
                f"{path}: its {kind} data is damaged or cut short: {error}",
                hint="copy the file again, or decompress it by hand to see what is there",
            ) from None

    return fill_or_refuse


class _DamagedError(Exception):
    """Compressed data that does not hold together."""


class Blocks:
    """Fills buffers from an iterator of byte blocks."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._left = memoryview(b"")

    def fill(self, view: memoryview) -> int:
        """Fill the buffer as far as one block goes; 0 at the end."""
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._left = memoryview(block)
        size = min(len(view), len(self._left))
        view[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def _zstd_blocks(packed: io.BufferedReader, path: str) -> Iterator[bytes]:
    """The frames of a zstd file; unlike the library's own reader it notices a file that is cut short."""
    try:
        import zstandard
    except ImportError:
        raise InputError(
            f"{path} is compressed with zstd, which needs an extra package",
            hint="install it with `pip install 'batchctl[zstd]'`",
        ) from None
    frame = None
    while data := packed.read1(ZSTD_CHUNK):
        while data:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            try:
                yield frame.decompress(data)
            except zstandard.ZstdError as error:
                raise _DamagedError(str(error)) from None
            data = b""
            if frame.eof:
                data, frame = frame.unused_data, None
    if frame is not None:
        raise _DamagedError("the last frame has no end")
