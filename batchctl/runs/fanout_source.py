"""Where the sync lane's items come from: those a run has pending, and their requests out of the spool."""

from __future__ import annotations

import os
from collections import deque
from typing import Protocol

from batchctl.files.spool import open_spool, read_line
from batchctl.runs.held import HeldRun
from batchctl.runs.lines import check_line
from batchctl.state.rows import Member

READ_AHEAD = 64 * 1024  # bytes of the spool
PAGE = 2_000  # rows; reading a page holds up every other item for a few milliseconds


class Items(Protocol):
    """A source of items that is asked for one at a time, when there is room for it (field report 157)."""

    @property
    def ended(self) -> bool:
        """Whether there never will be another."""
        ...

    def take(self) -> Member | None:
        """The next item, None where there is none now."""
        ...


class PendingItems:
    """The open items of a run that are in no batch, in input order, read a page at a time.

    Args:
        last: the last seq that is looked at.
    """

    def __init__(self, run: HeldRun, last: int) -> None:
        self._run = run
        self._last = last
        self._after = 0
        self._page: deque[Member] = deque()
        self.ended = False

    def take(self) -> Member | None:
        """The next item; None at the end."""
        if not self._page and not self.ended:
            self._read()
        return self._page.popleft() if self._page else None

    def _read(self) -> None:
        page = self._run.store.items.pending(self._run.id, after_seq=self._after, limit=PAGE)
        self._page.extend(member for member in page if member.seq <= self._last)
        if len(self._page) < PAGE:
            self.ended = True
        else:
            self._after = page[-1].seq


class Spool:
    """Reads requests from the spool as the sync lane sends them.

    They stand one after the other there, so most are in the piece that was read for the one before.
    """

    def __init__(self, run: HeldRun) -> None:
        self._form = run.form
        self._path = run.spool
        self._token = run.row.token
        self._file = open_spool(run.spool)
        self._start = 0
        self._piece = b""

    def request(self, member: Member) -> tuple[str, bytes]:
        """Endpoint and body of an item's request.

        Raises:
            StorageError: the file ends before it does, or holds something else in its place.
        """
        start = member.offset - self._start
        if not 0 <= start <= start + member.length <= len(self._piece):
            self._piece = os.pread(self._file.fileno(), max(member.length, READ_AHEAD), member.offset)
            self._start, start = member.offset, 0
            if len(self._piece) < member.length:
                read_line(self._file, member.offset, member.length)  # says what is wrong
        line = self._piece[start : start + member.length]
        if not (line.startswith(b'{"custom_id":"%b"' % member.id.encode()) and line.endswith(b"}")):
            check_line(self._token, member, line, str(self._path))  # most ids stand there as they are
        return self._form.split(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
