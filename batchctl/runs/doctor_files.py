"""Examines a run's result files against the state file, and mends what can be mended."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from batchctl.core.model import Answer, BatchState, ItemState, Lane, Outcome
from batchctl.core.reply import parse_output
from batchctl.files.download import save
from batchctl.files.mending import NumberedLine, keep_aside, numbered_lines, put_in_place, write_next
from batchctl.files.results import error_line
from batchctl.files.scan import scan_lines
from batchctl.files.spool import read_line
from batchctl.providers.base import Phase
from batchctl.runs.findings import Finding
from batchctl.runs.held import HeldRun
from batchctl.runs.recording import Slice
from batchctl.state.rows import BatchRow, ItemRow

PAGE = 5_000
NAMED = 10  # items or lines named in one finding

Kept = dict[int, tuple[int, int]]  # seq: offset and length of the line that is good
_NAMES = {ItemState.SUCCEEDED: "results.jsonl", ItemState.FAILED: "errors.jsonl"}


@dataclass(slots=True)
class FileCheck:
    """One result file compared with the items that should be in it."""

    state: ItemState
    path: Path
    recorded: int
    kept: Kept = field(default_factory=dict)
    lost: list[ItemRow] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)  # line numbers
    foreign: list[int] = field(default_factory=list)  # line numbers
    problems: list[str] = field(default_factory=list)
    tail: list[tuple[int, int]] = field(default_factory=list)  # lines written before a crash, not counted yet

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong with it."""
        return not (self.lost or self.broken or self.foreign or self.problems)


def check_file(run: HeldRun, state: ItemState) -> FileCheck:
    """Read a result file as far as it is counted, and look for every line that should be there."""
    name = _NAMES[state]
    recorded = run.row.results_bytes if state is ItemState.SUCCEEDED else run.row.errors_bytes
    check = FileCheck(state, run.output.local / name, recorded)
    if not check.path.is_file():
        if recorded:
            check.problems.append(f"{check.path} is missing, {recorded:,} bytes of it were counted")
    else:
        size = check.path.stat().st_size
        if size < recorded:
            check.problems.append(f"{check.path} is shorter than counted ({size:,} bytes of {recorded:,})")
        _read(run, check)
    check.lost = [row for row in run.store.items.each(run.id, state=state) if row.seq not in check.kept]
    return check


def _read(run: HeldRun, check: FileCheck) -> None:
    page: list[NumberedLine] = []
    nameless: dict[int, NumberedLine] = {}  # bad records have no id; their place tells
    for line in numbered_lines(check.path):
        if not line.sound:
            if line.offset < check.recorded:
                check.broken.append(line.number)
        elif line.item_id is None:
            nameless[line.offset] = line
        else:
            page.append(line)
            if len(page) >= PAGE:
                _match(run, check, page)
                page = []
    _match(run, check, page)
    if nameless:
        for row in run.store.items.each(run.id, state=check.state):
            if row.id is None and row.out_offset in nameless:
                line = nameless.pop(row.out_offset)
                check.kept[row.seq] = (line.offset, line.length)
    check.foreign += [line.number for line in nameless.values()]


def _match(run: HeldRun, check: FileCheck, page: list[NumberedLine]) -> None:
    seqs = run.store.items.lookup(run.id, [line.item_id for line in page if line.item_id is not None])
    rows = run.store.items.by_seqs(run.id, list(seqs.values()))
    for line in page:
        row = rows.get(seqs.get(line.item_id or "", 0))
        unplanned = row is None and not run.row.inputs  # of a stream, under an older copy of the state file
        if line.offset >= check.recorded and (unplanned or (row and row.state is not check.state)):
            check.tail.append((line.offset, line.length))
            continue
        if row is None or row.state is not check.state or row.seq in check.kept:
            check.foreign.append(line.number)
            continue
        check.kept[row.seq] = (line.offset, line.length)
        if (row.out_offset, row.out_length) != (line.offset, line.length) and len(check.problems) < NAMED:
            check.problems.append(f"{check.path} line {line.number}: item {row.id!r} is not where it was written")


def findings_of(run: HeldRun, check: FileCheck) -> list[Finding]:
    """What is wrong with a result file, as sentences."""
    found = list(check.problems)
    if check.broken:
        found.append(f"{check.path} line {_some(check.broken)}: damaged")
    if check.foreign:
        found.append(f"{check.path} line {_some(check.foreign)}: belongs to no item there")
    if check.lost:
        shown = _some([repr(row.id) for row in check.lost])
        found.append(f"{check.path}: the lines of {len(check.lost):,} items are gone: {shown}")
    way = "the old file is kept, its sound lines stay, gone ones are written anew from the provider or the state file"
    return [Finding(run.name, text, way, mendable=True) for text in found]


def _some(values: list[int] | list[str]) -> str:
    more = f" and {len(values) - NAMED:,} more" if len(values) > NAMED else ""
    return ", ".join(str(value) for value in values[:NAMED]) + more


def mend(run: HeldRun, check: FileCheck, stamp: str) -> list[ItemRow]:
    """Rebuild a file of its sound lines, errors.jsonl also of recorded errors; returns items still without a line."""
    made: dict[int, bytes] = {}
    if check.state is ItemState.FAILED:
        made = {row.seq: _error_again(run, row) for row in check.lost}
    _rewrite(run, check, made, stamp)
    return [row for row in check.lost if row.seq not in made]


def _rewrite(run: HeldRun, check: FileCheck, made: dict[int, bytes], stamp: str | None) -> None:
    """Put sound and new lines in a new file; the tail that is not counted yet follows them."""
    if stamp is not None:
        keep_aside(check.path, stamp)
    tail = b""
    if check.tail:
        with check.path.open("rb") as old:
            tail = b"".join(read_line(old, *place) + b"\n" for place in check.tail)
    kept = sorted(check.kept.items(), key=lambda entry: entry[1])
    places = write_next(check.path, [place for _, place in kept], made.values())
    seqs = [seq for seq, _ in kept] + list(made)
    end = sum(length + 1 for _, length in places)
    with run.store.transaction(durable=True):
        run.store.results.misplace(run.id, [row.seq for row in check.lost])
        run.store.results.remap(run.id, dict(zip(seqs, places, strict=True)))
        results, errors = run.store.results.ends(run.id)
        ends = (end, errors) if check.state is ItemState.SUCCEEDED else (results, end)
        run.store.results.set_ends(run.id, *ends)
    run.close()
    put_in_place(check.path, tail)
    run.refresh()


def _error_again(run: HeldRun, row: ItemRow) -> bytes:
    """An error line from what the state file remembers; the text of the answer, if there was one, is gone."""
    attempts = run.store.items.attempts(run.id, row.seq)
    last = attempts[-1] if attempts else None
    batch = None if row.batch is None else run.store.batches.get(run.id, row.batch)
    refused = f"refused when the run was planned (input line {row.line})"
    return error_line(
        id=row.id,
        outcome=row.outcome or Outcome.ERRORED,
        error_type=(last and last.error_type) or "bad_input",
        error_code=last.error_code if last else None,
        error_message=(last and last.error_message) or refused,
        attempts=row.attempts,
        batch_id=batch.batch_id if batch else None,
        round=row.round,
        text=None,
    )


async def fetch_again(run: HeldRun, lost: list[ItemRow]) -> list[ItemRow]:
    """Write lost answers anew from the results the provider still has; returns the items it has none for."""
    groups: dict[int, dict[int, ItemRow]] = {}
    for row in lost:
        groups.setdefault(row.batch or 0, {})[row.seq] = row
    made: dict[int, bytes] = {}
    for number, rows in groups.items():
        batch = run.store.batches.get(run.id, number)
        if batch is not None and batch.batch_id is not None and batch.state in (BatchState.COLLECTED, BatchState.ENDED):
            made |= await _from_batch(run, batch, rows)
    if made:
        _rewrite(run, check_file(run, ItemState.SUCCEEDED), made, None)
    return [row for row in lost if row.seq not in made]


async def _from_batch(run: HeldRun, batch: BatchRow, rows: dict[int, ItemRow]) -> dict[int, bytes]:
    from batchctl.core.errors import ProviderError

    assert batch.batch_id is not None
    path = run.work / "downloads" / f"again-{batch.number}.jsonl"
    try:
        check = await run.provider.check(batch.batch_id)
        if check.phase is not Phase.ENDED or not check.outputs:
            return {}
        await save(run.provider.results(check), path)
    except ProviderError:
        return {}
    wanted = {run.wire_id(row.id or "", seq, batch.number): row for seq, row in rows.items()}
    made: dict[int, bytes] = {}
    part = Slice(run, Lane.BATCH, batch)
    for line in scan_lines(path):
        answer = _answer(run, line.raw)
        row = None if answer is None else wanted.get(answer.custom_id)
        if row is not None and answer is not None and part.accepts(answer):
            rates = run.rates(run.settings.model or answer.model, batch=True)
            cost = None if rates is None or answer.usage is None else rates.cost(answer.usage)
            output = None if answer.text is None else parse_output(answer.text)
            made[row.seq] = part.line_of(row, answer, output, cost)
    path.unlink()
    return made


def _answer(run: HeldRun, raw: bytes) -> Answer | None:
    try:
        return run.form.parse_result(raw)
    except ValueError:
        return None
