"""The state store: one SQLite file, opened to write or to read, with its parts as attributes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from batchctl.state.batches import Batches
from batchctl.state.connection import Database, open_readonly, open_writable
from batchctl.state.events import Events
from batchctl.state.items import Items
from batchctl.state.results import Results
from batchctl.state.runs import Runs


class Store:
    """Everything that must survive a crash. Use it from the thread that opened it; readers never block."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self.path = database.path
        self.runs = Runs(database)
        self.items = Items(database)
        self.batches = Batches(database)
        self.results = Results(database)
        self.events = Events(database)

    @classmethod
    def open(cls, path: Path, *, readonly: bool = False) -> Self:
        """Open a state file.

        Args:
            path: the file; its folder and itself are created (0700, 0600) unless `readonly`.
            readonly: never create, migrate or write; quick enough for a status command.

        Raises:
            InputError: `readonly`, and there is no state file.
            StateError: the file is newer than this version, not a state file, damaged, or cannot be opened.
        """
        return cls(open_readonly(path) if readonly else open_writable(path))

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[None]:
        """An immediate transaction that calls made inside it join; see `Database.transaction`."""
        return self._db.transaction(durable=durable)

    def keep_pages(self, kib: int) -> None:
        """Keep so many KiB of the state file in memory at most; a command that runs for days needs few of them."""
        self._db.keep_pages(kib)

    def close(self) -> None:
        """Close the connection; a writer's last close folds the WAL back into the file."""
        self._db.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
