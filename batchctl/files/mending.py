"""Mends a result file that something else damaged: its sound lines and new ones in a new file, the old one kept."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from batchctl.files.durable import private, replace, storage
from batchctl.files.linelog import staged_path
from batchctl.files.scan import scan_lines
from batchctl.files.spool import SpoolWriter, read_line


class _Id(msgspec.Struct):
    id: str | None


_ID = msgspec.json.Decoder(_Id)


class NumberedLine(NamedTuple):
    """A line of a result file: its number from 1, its place, the item it names, and whether it can be read."""

    number: int
    offset: int
    length: int
    item_id: str | None
    sound: bool


def numbered_lines(path: Path) -> Iterator[NumberedLine]:
    """Every line of a result file that is not blank."""
    number, position = 1, 0
    with storage(path), path.open("rb") as file:
        for line in scan_lines(path):
            file.seek(position)
            number += file.read(line.offset - position).count(b"\n")
            position = line.offset
            try:
                item_id, sound = _ID.decode(line.raw).id, True
            except (msgspec.DecodeError, RecursionError):
                item_id, sound = None, False
            yield NumberedLine(number, line.offset, len(line.raw), item_id, sound)


def keep_aside(path: Path, stamp: str) -> Path | None:
    """Copy a file as it is, so that nothing of it is lost; returns where, None where there is no file."""
    if not path.exists():
        return None
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    with storage(aside), path.open("rb") as old, open(aside, "wb", opener=private) as new:
        shutil.copyfileobj(old, new)
        new.flush()
        os.fsync(new.fileno())
    return aside


def write_next(path: Path, keep: Iterable[tuple[int, int]], extra: Iterable[bytes]) -> list[tuple[int, int]]:
    """Write the file that is to take the place of `path`; returns (offset, length) of kept lines, then of new ones."""
    writer = SpoolWriter(staged_path(path))
    places: list[tuple[int, int]] = []
    with (path if path.exists() else Path(os.devnull)).open("rb") as old:
        for offset, length in keep:
            places.append((writer.append(read_line(old, offset, length)), length))
    places += [(writer.append(line), len(line)) for line in extra]
    writer.sync()
    writer.close()
    return places


def put_in_place(path: Path, tail: bytes) -> None:
    """Give the new file its name; `tail` are lines of the old one that are not counted yet."""
    with storage(path):
        replace(staged_path(path), path)
        with open(path, "ab", opener=private) as file:
            file.write(tail)
            file.flush()
            os.fsync(file.fileno())
