"""The requests of open items: whether they are in the spool as they were made, and how they are made anew.

A request can be made anew where its input file is still there and unchanged: the same record and the same settings
give the same bytes. Nothing else is ever put in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import msgspec

from batchctl.core.errors import InputError
from batchctl.core.model import ItemState
from batchctl.files.readers import BadRecord, Record, digest, open_source
from batchctl.files.spool import SpoolMender
from batchctl.runs.building import Built, ItemProblemError, make_builder
from batchctl.runs.findings import Finding
from batchctl.runs.held import HeldRun
from batchctl.runs.lines import names
from batchctl.state.rows import ItemRow

NAMED = 10


_WHOLE = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_spool(run: HeldRun, *, repair: bool) -> list[Finding]:
    """Look at the request of every open item; with `repair`, make those that are gone anew from the input."""
    there = run.spool.is_file()
    with SpoolMender(run.spool, create=False) as spool:
        lost, named = _tally(_broken(run, spool))
    if not lost:
        return []
    state = _size_of(run) if there else "is missing"
    text = f"{run.spool} {state}: the requests of {lost:,} open items are not there: {named}"
    obstacle = _obstacle(run)
    by_hand = f"put the spool back; without it, `batchctl accept {run.name}` closes the run with these unanswered"
    if obstacle is not None:
        return [Finding(run.name, text, f"{obstacle}; or {by_hand}")]
    finding = Finding(run.name, text, "made anew from the input, which is unchanged", mendable=True)
    if repair:
        with SpoolMender(run.spool, create=True) as spool:
            _make_anew(run, spool)
            spool.sync()
            left, named = _tally(_broken(run, spool))
        finding.mended = not left
        if left:
            finding.mendable = False
            finding.text = f"{run.spool}: the requests of {left:,} open items cannot be made anew: {named}"
            finding.way_out = by_hand
    return [finding]


def _size_of(run: HeldRun) -> str:
    size = run.spool.stat().st_size
    needed = max(
        (
            row.offset + (row.length or 0) + 1
            for row in run.store.items.each(run.id, state=ItemState.OPEN)
            if row.offset is not None
        ),
        default=0,
    )
    return f"is shorter than counted ({size:,} bytes, {needed:,} are needed)" if size < needed else "is damaged"


def _tally(rows: Iterator[ItemRow]) -> tuple[int, str]:
    """How many, and the first of them by name."""
    total, shown = 0, []
    for row in rows:
        total += 1
        if total <= NAMED:
            shown.append(repr(row.id))
    more = f" and {total - NAMED:,} more" if total > NAMED else ""
    return total, ", ".join(shown) + more


def _broken(run: HeldRun, spool: SpoolMender) -> Iterator[ItemRow]:
    """The open items whose request is not where it was written, in input order."""
    for row in run.store.items.each(run.id, state=ItemState.OPEN):
        if row.offset is None or row.length is None:
            continue
        line = spool.line(row.offset, row.length)
        if line is None or not _is_of(run, row, line):
            yield row


def _is_of(run: HeldRun, row: ItemRow, line: bytes) -> bool:
    """Whether a line is a whole request, and of this item."""
    try:
        _WHOLE.decode(line)
    except (msgspec.DecodeError, RecursionError):
        return False
    return names(run.row.token, row, line)


def _obstacle(run: HeldRun) -> str | None:
    """Why the input cannot give the requests again, None where it can."""
    if not run.row.inputs:
        return "the input was a stream, or was not read to its end"
    for entry in run.row.inputs:
        path = str(entry["path"])
        if path == "-":
            return "the input came from standard input"
        try:
            size, sha256 = digest(path) if Path(path).is_file() else (0, "")
        except InputError:
            size, sha256 = 0, ""
        if not sha256:
            return f"the input {path} is gone: put it back as it was (sha256 {str(entry['sha256'])[:12]}…)"
        if (size, sha256) != (entry["bytes"], entry["sha256"]):
            return f"the input {path} has changed: put it back as it was (sha256 {str(entry['sha256'])[:12]}…)"
        try:
            open_source(path)
        except InputError as error:
            return error.message
    return None


def _make_anew(run: HeldRun, spool: SpoolMender) -> None:
    """Read the input once more and write each broken request where it was; both go in input order."""
    build = make_builder(run.settings, run.form)
    broken = _broken(run, spool)
    row = next(broken, None)
    seqs = count(1)
    for entry in run.row.inputs:
        for record in open_source(str(entry["path"])):
            seq = next(seqs)
            if row is None:
                return
            if seq == row.seq:
                line = _line_of(run, row, record, build)
                if line is not None and row.offset is not None:
                    spool.put(row.offset, line)
                row = next(broken, None)


def _line_of(
    run: HeldRun, row: ItemRow, record: Record | BadRecord, build: Callable[[Record, int], Built]
) -> bytes | None:
    """The request line of an item, byte for byte as it was; None where this record does not give it."""
    if isinstance(record, BadRecord):
        return None
    try:
        built = build(record, row.seq)
    except ItemProblemError:
        return None
    if built.id != row.id:
        return None
    lines = (
        run.form.head(run.wire_id(built.id, row.seq, number), built.endpoint) + built.body + b"}"
        for number in _first_batches(run, row)
    )
    return next((line for line in lines if len(line) == row.length), None)


def _first_batches(run: HeldRun, row: ItemRow) -> list[int]:
    """The batches whose number the item's tagged id may hold; without tags one stands for all."""
    if not run.settings.tag_ids:
        return [0]
    first = [batch for batch in run.store.batches.all(run.id) if not batch.round]
    return [batch.number for batch in first if batch.first_seq <= row.seq <= batch.last_seq]
