"""Reads a source that may never end in a thread of its own, a bounded number of records ahead."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import chain
from typing import NamedTuple

from batchctl.core.errors import BatchctlError
from batchctl.files.readers import BadRecord, Record, Source

AHEAD = 512  # records


class Placed(NamedTuple):
    """A record and where it stands."""

    record: Record | BadRecord
    source: int
    path: str


class Feed:
    """Hands records over as they come; the thread waits while enough of them wait.

    Attributes:
        error: why reading broke off, once it has ended.
        ended: no record will come any more; those handed over before may still wait.
    """

    def __init__(self, sources: list[Source]) -> None:
        self._sources = sources
        self._records = self._read()
        self._ready: list[Placed] = []
        self._room = threading.Condition()
        self._notify: Callable[[], None] = lambda: None
        self._stopped = False
        self._finished = False
        self._exhausted = False
        self.error: BatchctlError | None = None

    def first(self) -> None:
        """Wait here for the first record, before the thread starts.

        Raises:
            InputError: there is none, or the input cannot be read.
        """
        self._records = chain([next(self._records)], self._records)

    def start(self, notify: Callable[[], None]) -> None:
        """Start the thread; it is not waited for at exit, since a read may last for ever.

        Args:
            notify: called from the thread when records are there after none was, and at the end.
        """
        self._notify = notify
        threading.Thread(target=self._run, name="input", daemon=True).start()

    def take(self) -> list[Placed]:
        """The records that wait, if any."""
        with self._room:
            ready, self._ready = self._ready, []
            self._room.notify()
        return ready

    def stop(self) -> None:
        """Read nothing more."""
        with self._room:
            self._stopped = True
            self._room.notify()

    @property
    def ended(self) -> bool:
        """Whether reading is over and everything was taken."""
        with self._room:
            return self._finished and not self._ready

    @property
    def complete(self) -> bool:
        """Whether it was read to its end and everything was taken."""
        return self._exhausted and self.ended

    def inputs(self) -> list[dict[str, object]]:
        """What the inputs were, once they were read to their end."""
        return [
            {
                "path": source.path,
                "bytes": source.bytes_read,
                "sha256": source.sha256,
                "modified_ns": source.modified_ns,
            }
            for source in self._sources
        ]

    def _read(self) -> Iterator[Placed]:
        for index, source in enumerate(self._sources):
            for record in source:
                yield Placed(record, index, source.path)

    def _run(self) -> None:
        try:
            for placed in self._records:
                with self._room:
                    while len(self._ready) >= AHEAD and not self._stopped:
                        self._room.wait()
                    if self._stopped:
                        return
                    self._ready.append(placed)
                    alone = len(self._ready) == 1
                if alone:
                    self._notify()
            self._exhausted = True
        except BatchctlError as error:
            self.error = error
        finally:
            with self._room:
                self._finished = True
            self._notify()
