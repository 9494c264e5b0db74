r"""Walks the lines of a downloaded or written file: split on `\n` only, whatever the text holds (field report 111)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec

from batchctl.files.durable import storage
from batchctl.files.records import skip_line

BUFFER = 1 << 20
MAX_LINE_BYTES = 256 * 2**20


class Line(msgspec.Struct, gc=False):
    """One line that is not blank.

    Args:
        offset: where it starts in the file.
        raw: its bytes, without the newline (also a CRLF).
        complete: it ends with a newline; false for a last line that may be cut short.
    """

    offset: int
    raw: bytes
    complete: bool


def scan_lines(path: Path, max_line_bytes: int = MAX_LINE_BYTES, *, start: int = 0) -> Iterator[Line]:
    """Yield the lines of a file from byte `start` on, in constant memory; blank ones are passed over.

    A line over `max_line_bytes` is yielded cut at that length: it can be no result, and shows as an odd line.

    Raises:
        StorageError: the file cannot be opened.
    """
    with storage(path):
        file = path.open("rb", BUFFER)
    with file:
        file.seek(start)
        offset = start
        for line in iter(partial(file.readline, max_line_bytes), b""):
            complete = line[-1] == 10  # noqa: PLR2004  # a newline
            raw = line.rstrip(b"\r\n") if complete else line
            if raw and not raw.isspace():
                if not complete and len(line) == max_line_bytes:
                    complete = skip_line(file)
                    yield Line(offset, raw, complete)
                    offset = file.tell()
                    continue
                yield Line(offset, raw, complete)
            offset += len(line)
