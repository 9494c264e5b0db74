"""The append-only event log that lets a later process carry on, tolerant of a torn last line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from batchctl.simulator.codec import decode, encode


class Journal:
    """JSON lines of what happened, each written with one system call; without a folder it keeps nothing."""

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / "journal.jsonl" if folder else None
        self._fd: int | None = None

    def replay(self) -> Iterator[dict[str, Any]]:
        """Yield the events so far and cut off a torn tail, then accept new ones."""
        if self._path is None:
            return
        if self._path.exists():
            good = 0
            with self._path.open("rb") as log:
                for line in log:
                    try:
                        event = decode(line) if line.endswith(b"\n") else None
                    except msgspec.DecodeError:
                        event = None
                    if not isinstance(event, dict):
                        break
                    good += len(line)
                    yield event
            os.truncate(self._path, good)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, event: dict[str, Any]) -> None:
        """Append one event; silent while replaying and without a folder."""
        if self._fd is not None:
            os.write(self._fd, encode(event) + b"\n")

    def close(self) -> None:
        """Release the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
