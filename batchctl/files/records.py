"""What a reader yields: a record, or the place and reason of one that cannot be read."""

from __future__ import annotations

from typing import Any, BinaryIO

import msgspec

SKIP = 1 << 20  # bytes read at once to get past a line that is too long


class Record(msgspec.Struct, gc=False):
    """One input record.

    Args:
        line: 1-based physical line where it starts (Parquet: row number).
        raw: JSONL only: the line's bytes, valid UTF-8, without surrounding whitespace.
        fields: CSV and Parquet: the fields, decoded.
    """

    line: int
    raw: bytes | None = None
    fields: dict[str, Any] | None = None


class Block(msgspec.Struct, gc=False):
    """Whole lines of JSONL together.

    Args:
        line: 1-based line where it starts.
        count: how many lines it is.
        data: valid UTF-8, with the newlines; the last line has none at the end of the input.
    """

    line: int
    count: int
    data: bytes


class BadRecord(msgspec.Struct, gc=False):
    """A record that cannot be read, and why, with the way out where there is one."""

    line: int
    reason: str


def bad_utf8(line: int, raw: bytes) -> BadRecord:
    """The record of a line that is not UTF-8, with the first byte that is not."""
    try:
        raw.decode()
    except UnicodeDecodeError as error:
        where = f"byte {error.start + 1} of the line (0x{raw[error.start]:02x})"
        return BadRecord(line, f"not UTF-8 at {where}: save the file as UTF-8, as with `iconv -t utf-8`")
    raise AssertionError("the line is UTF-8")


def too_long(line: int, limit: int) -> BadRecord:
    """The record of a line that was not read to its end."""
    return BadRecord(line, f"the line is longer than {limit:,} bytes: is the file one object a line?")


def skip_line(stream: BinaryIO) -> bool:
    """Go on to the next line without holding this one; false when the file ends first."""
    while part := stream.readline(SKIP):
        if part.endswith(b"\n"):
            return True
    return False
