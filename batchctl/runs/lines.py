"""The request lines of a batch as a stream: slices of the spool, or a file of its own where ids carry the batch."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from batchctl.core.errors import StorageError
from batchctl.core.ids import Generated, Own, resolve
from batchctl.files.spool import SpoolWriter, open_slices, open_spool, read_line
from batchctl.runs.held import HeldRun
from batchctl.state.rows import BatchRow, ItemRow, Member

PAGE = 20_000
LOOKED_AT = 32  # lines of a batch compared with their items before it is sent
_ID_START = b'{"custom_id":"'  # a tagged id needs no escape, so it ends at the next quote


class _Head(msgspec.Struct):
    custom_id: str


_HEAD = msgspec.json.Decoder(_Head)


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
    with open_spool(run.spool) as spool:
        return run.form.parse_request(msgspec.json.decode(read_line(spool, first.offset, first.length)))[1]


def check_requests(run: HeldRun, batch: BatchRow) -> None:
    """Refuse to send a batch whose lines in the spool are not its items' requests; looks at some, from end to end.

    Raises:
        StorageError: the spool is missing, cut, or another one.
    """
    step = max(1, (batch.last_seq - batch.first_seq) // LOOKED_AT)
    seqs = {*range(batch.first_seq, batch.last_seq, step), batch.last_seq}
    with open_spool(run.spool) as spool:
        for row in run.store.items.by_seqs(run.id, sorted(seqs)).values():
            if row.batch == batch.number and row.offset is not None and row.length is not None:
                check_line(run.row.token, row, read_line(spool, row.offset, row.length), str(run.spool))


def check_line(token: str, item: ItemRow | Member, line: bytes, path: str) -> None:
    """Refuse a line that is not the request of an item.

    Raises:
        StorageError: it is another's, or no request.
    """
    if not names(token, item, line) or not line.endswith(b"}"):
        raise StorageError(
            f"{path}: the request of item {item.id!r} is not where it was written: the file was damaged or exchanged",
            hint="`batchctl doctor` says what can be done; nothing of it was sent",
        )


def names(token: str, item: ItemRow | Member, line: bytes) -> bool:
    """Whether a request line begins with the custom id of an item."""
    if not line.startswith(_ID_START):
        return False
    raw = line[len(_ID_START) : line.find(b'"', len(_ID_START))]
    if b"\\" not in raw:
        found = raw.decode("utf-8", "replace")
    else:
        try:
            found = _HEAD.decode(line).custom_id
        except msgspec.DecodeError:
            return False
    match resolve(found, token):
        case Own(id=item_id):
            return item_id == item.id
        case Generated(seq=seq):
            return seq == item.seq
        case _:
            return False


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
    with open_spool(run.spool) as spool:
        for row in members(run, batch):
            line = read_line(spool, row.offset, row.length)
            old_id = line[len(_ID_START) : line.index(b'"', len(_ID_START))].decode()
            body = line[len(run.form.head(old_id, endpoint)) :]
            writer.append(run.form.head(run.wire_id(row.id, row.seq, batch.number), endpoint) + body)
    writer.sync()
    writer.close()
    return path.open("rb")
