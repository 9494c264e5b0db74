"""Reads items from JSONL, CSV, TSV and Parquet, one at a time, in constant memory; one bad record costs itself only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader, BytesIO
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import msgspec

from batchctl.core.errors import InputError
from batchctl.files.opening import Opened, check_readable, digest
from batchctl.files.records import BadRecord, Block, Record, bad_utf8, skip_line, too_long
from batchctl.files.repair import decode_repairing

__all__ = ["BadRecord", "Block", "Record", "Source", "decode", "digest", "open_source"]

MAX_LINE_BYTES = 64 * 2**20

FORMATS = ("jsonl", "csv", "tsv", "parquet")
_SUFFIXES = {
    "": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
}
_PACKED_SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
_DECODER = msgspec.json.Decoder(dict[str, Any])


class Source:
    """One input; iterating reads it from its start to its end, lazily.

    `bytes_read` (as stored), `sha256` (hex, of the bytes as stored) and `modified_ns` (0 for standard input)
    are right once it is exhausted.
    """

    def __init__(self, path: str, format: str, max_line_bytes: int) -> None:  # noqa: A002  # the option's name
        self.path = path
        self.format = format
        self.bytes_read = 0
        self.sha256 = ""
        self.modified_ns = 0
        self._max_line_bytes = max_line_bytes

    def __iter__(self) -> Iterator[Record | BadRecord]:
        """Yield every record.

        Raises:
            InputError: the file as a whole cannot be read.
        """
        if self.format == "parquet":
            return self._parquet()
        return self._jsonl() if self.format == "jsonl" else self._csv()

    @contextmanager
    def _opened(self) -> Iterator[BufferedReader]:
        """The stream of lines; what it was is noted once it is exhausted."""
        with Opened(self.path) as opened:
            self.modified_ns = opened.modified_ns
            yield opened.stream
            self.sha256 = opened.finish()
            self.bytes_read = opened.bytes_read

    def _parquet(self) -> Iterator[Record | BadRecord]:
        from batchctl.files.readers_parquet import read_parquet

        yield from read_parquet(self.path)
        self.modified_ns = Path(self.path).stat().st_mtime_ns
        self.bytes_read, self.sha256 = digest(self.path)

    def _csv(self) -> Iterator[Record | BadRecord]:
        from batchctl.files.readers_csv import CsvReader

        with self._opened() as stream:
            yield from CsvReader(stream, self.path, "\t" if self.format == "tsv" else ",", self._max_line_bytes)

    def _jsonl(self) -> Iterator[Record | BadRecord]:
        with self._opened() as stream:
            yield from self._records(stream)

    def blocks(self) -> Iterator[Block | Record | BadRecord]:
        """Yield every record, lines of JSONL many at a time; `records` takes a block apart.

        Raises:
            InputError: the file as a whole cannot be read.
        """
        if self.format != "jsonl":
            yield from self
            return
        line = 1
        with self._opened() as stream:
            while held := stream.peek():
                end = held.rfind(b"\n") + 1
                block = Block(line, held.count(b"\n"), stream.read(end))
                if not end:
                    yield from self._records(stream, line, 1)
                    line += 1
                elif end > self._max_line_bytes or not _is_utf8(block.data):
                    yield from self.records(block)
                else:
                    yield block
                line += block.count

    def records(self, block: Block) -> Iterator[Record | BadRecord]:
        """The lines of a block, one at a time."""
        return self._records(BytesIO(block.data), block.line)

    def _records(self, stream: BinaryIO, first: int = 1, most: int | None = None) -> Iterator[Record | BadRecord]:
        limit = self._max_line_bytes
        lines = islice(iter(partial(stream.readline, limit + 2), b""), most)
        for number, line in enumerate(lines, first):
            raw = line.strip()
            if len(line) > limit and len(line.rstrip(b"\r\n")) > limit:
                if not line.endswith(b"\n"):
                    skip_line(stream)
                yield too_long(number, limit)
            elif not raw:
                continue
            elif not _is_utf8(raw):
                yield bad_utf8(number, line)
            elif number == 1 and raw in (b"[", b"{"):
                raise InputError(
                    f"{self.path}: this is one JSON document over many lines, not one object a line",
                    hint="turn it into JSON lines, as with `jq -c '.[]' FILE`",
                )
            else:
                yield Record(number, raw)


def open_source(path: str, *, format: str | None = None, max_line_bytes: int = MAX_LINE_BYTES) -> Source:  # noqa: A002
    """Make an input ready to be read; nothing but its name and size is looked at yet.

    Args:
        path: a file or FIFO, optionally compressed (gzip, bzip2, xz, zstd, told by content), or `-` for standard input.
        format: `jsonl`, `csv`, `tsv` or `parquet`, where the name does not tell.
        max_line_bytes: longest line (decompressed) that is read; a longer one is a bad record.

    Raises:
        InputError: no such file, no permission, a folder, an empty file, or a format we do not know.
    """
    check_readable(path)
    chosen = format or _format_of(path)
    if chosen not in FORMATS:
        raise InputError(f"unknown format {chosen!r}", hint=f"one of {', '.join(FORMATS)}")
    return Source(path, chosen, max_line_bytes)


def _format_of(path: str) -> str:
    if path == "-":
        return "jsonl"
    name = PurePath(path)
    if name.suffix.lower() in _PACKED_SUFFIXES:
        name = name.with_suffix("")
    found = _SUFFIXES.get(name.suffix.lower())
    if found is None:
        raise InputError(f"{path}: the name does not tell the format", hint=f"say it with --format {'|'.join(FORMATS)}")
    return found


def _is_utf8(raw: bytes) -> bool:
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode(record: Record) -> tuple[dict[str, Any], bool]:
    """The fields of a record, and whether text in it that was no valid Unicode was replaced by U+FFFD.

    Raises:
        ValueError: the line is no JSON object that could be sent; the text says why.
    """
    if record.raw is None:
        assert record.fields is not None
        return record.fields, False
    try:
        return _DECODER.decode(record.raw), False
    except (msgspec.DecodeError, RecursionError) as error:
        return decode_repairing(record.raw, error)
