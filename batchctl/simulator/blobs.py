"""Large byte strings (request lines, uploads, result files): in memory, or as files of the data folder."""

from __future__ import annotations

import io
import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


class BlobWriter:
    """Bytes on their way into the store; nothing is visible under the name before `commit`."""

    def __init__(self, store: BlobStore, name: str) -> None:
        self._store = store
        self._name = name
        self._temporary = store.folder / f"{name}.part" if store.folder else None
        self._sink: IO[bytes] = self._temporary.open("wb") if self._temporary else io.BytesIO()
        self.size = 0

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._sink.write(data)
        self.size += len(data)

    def commit(self) -> None:
        """Make the bytes visible, all at once."""
        if isinstance(self._sink, io.BytesIO):
            self._store.memory[self._name] = self._sink.getvalue()
            return
        self._sink.close()
        assert self._temporary is not None
        assert self._store.folder is not None
        self._temporary.replace(self._store.folder / self._name)

    def discard(self) -> None:
        """Forget the bytes."""
        self._sink.close()
        if self._temporary:
            self._temporary.unlink(missing_ok=True)


class BlobStore:
    """Named byte strings that never change once committed."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.memory: dict[str, bytes] = {}
        if folder:
            folder.mkdir(parents=True, exist_ok=True)

    def writer(self, name: str) -> BlobWriter:
        """Start a new byte string."""
        return BlobWriter(self, name)

    def put(self, name: str, data: bytes) -> None:
        """Store bytes that are at hand."""
        sink = self.writer(name)
        sink.write(data)
        sink.commit()

    def has(self, name: str) -> bool:
        """Tell whether the name is committed."""
        return (self.folder / name).exists() if self.folder else name in self.memory

    def size(self, name: str) -> int:
        """Count the bytes under a name."""
        return (self.folder / name).stat().st_size if self.folder else len(self.memory[name])

    def open(self, name: str) -> IO[bytes]:
        """Open for reading; iteration splits at newlines only."""
        return (self.folder / name).open("rb") if self.folder else io.BytesIO(self.memory[name])

    @contextmanager
    def view(self, name: str) -> Iterator[bytes | mmap.mmap]:
        """Give random access without a system call for each read."""
        if not self.folder:
            yield self.memory[name]
            return
        with (self.folder / name).open("rb") as source:
            # An empty file cannot be mapped.
            if self.size(name) == 0:
                yield b""
                return
            with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                yield mapped

    def delete(self, name: str) -> None:
        """Forget the bytes; an absent name is fine."""
        self.memory.pop(name, None)
        if self.folder:
            (self.folder / name).unlink(missing_ok=True)
