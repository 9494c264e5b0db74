"""The request lines of a batch as a stream: slices of the spool, or a file of its own where ids carry the batch."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from batchctl.files.spool import SpoolWriter, open_slices, read_line
from batchctl.runs.held import HeldRun
from batchctl.state.rows import BatchRow, Member

PAGE = 20_000
_ID_START = b'{"custom_id":"'  # a tagged id needs no escape, so it ends at the next quote


def members(run: HeldRun, batch: BatchRow) -> Iterator[Member]:
    """The items a batch holds, in input order, read a page at a time."""
    after = 0
    while page := run.store.items.members(run.id, batch.number, after_seq=after, limit=PAGE):
        yield from page
        after = page[-1].seq


def endpoint_of(run: HeldRun, batch: BatchRow) -> str:
    """Where a batch's requests go; finished requests say it themselves."""
    if not run.settings.requests:
        return run.row.endpoint
    first = next(members(run, batch))
    with run.spool.open("rb") as spool:
        return run.form.parse_request(msgspec.json.decode(read_line(spool, first.offset, first.length)))[1]


def open_batch_lines(run: HeldRun, batch: BatchRow) -> IO[bytes]:
    """Open a batch's request lines; seekable, in constant memory."""
    if _has_own_lines(run, batch):
        return _retagged(run, batch)
    return open_slices(run.spool, ((row.offset, row.length + 1) for row in members(run, batch)))


def size_of(run: HeldRun, batch: BatchRow) -> int:
    """Bytes of a batch's request lines, each with its newline, exactly as they are sent."""
    if not _has_own_lines(run, batch):
        return batch.size
    with _retagged(run, batch) as lines:
        return lines.seek(0, io.SEEK_END)


def drop_own_lines(run: HeldRun, batch: BatchRow) -> None:
    """Remove the file of a batch's own lines, once it was sent."""
    _own_lines(run, batch).unlink(missing_ok=True)


def _own_lines(run: HeldRun, batch: BatchRow) -> Path:
    return run.work / f"batch-{batch.number}.jsonl"


def _has_own_lines(run: HeldRun, batch: BatchRow) -> bool:
    """Whether its custom ids name the batch, and so differ in length from those in the spool."""
    return run.settings.tag_ids and batch.round > 0


def _retagged(run: HeldRun, batch: BatchRow) -> IO[bytes]:
    """A file of the batch's lines with custom ids that name this batch."""
    path = _own_lines(run, batch)
    path.unlink(missing_ok=True)
    endpoint = endpoint_of(run, batch)
    writer = SpoolWriter(path)
    with run.spool.open("rb") as spool:
        for row in members(run, batch):
            line = read_line(spool, row.offset, row.length)
            old_id = line[len(_ID_START) : line.index(b'"', len(_ID_START))].decode()
            body = line[len(run.form.head(old_id, endpoint)) :]
            writer.append(run.form.head(run.wire_id(row.id, row.seq, batch.number), endpoint) + body)
    writer.sync()
    writer.close()
    return path.open("rb")
