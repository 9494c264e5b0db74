"""Reads result lines back in that a dead process wrote but did not get to count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

import msgspec

from batchctl.core.errors import StorageError
from batchctl.core.events import Level
from batchctl.core.model import ItemState, Lane, Outcome, Usage
from batchctl.files.linelog import LineLog
from batchctl.runs.held import HeldRun
from batchctl.runs.reopening import take_back
from batchctl.state.rows import Failure, ItemRow, Success, Totals

PAGE = 2_000  # lines a transaction


class _UsageOfLine(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int


class _ErrorOfLine(msgspec.Struct):
    type: str
    code: str | None
    message: str


class _Line(msgspec.Struct):
    """What recovery needs of a line of either file."""

    id: str
    batch_id: str | None = None
    lane: Lane | None = None  # errors do not say
    cost_usd: float | None = None
    usage: _UsageOfLine | None = None
    outcome: Outcome = Outcome.SUCCEEDED
    error: _ErrorOfLine | None = None


class _Refusal(msgspec.Struct):
    """What tells the line of a record that could not be sent."""

    outcome: Outcome
    attempts: int


Found = tuple[int, int, _Line]  # offset, length, line


def recover(run: HeldRun) -> None:
    """Count every whole line past the recorded ends of results.jsonl and errors.jsonl, so that none is paid for again.

    Raises:
        StorageError: a line there belongs to no open item, so the file is not what this run wrote.
    """
    if _only_refused(run.errors):
        run.errors.drop_tail()
    numbers = {batch.batch_id: batch.number for batch in run.store.batches.all(run.id) if batch.batch_id}
    # errors first: an answer of a failed item rewrites errors.jsonl, of which every line must count by then
    failed = _count_failed(run, numbers)
    found = _count_found(run, numbers)
    for log in (run.results, run.errors):
        if log.repaired:
            run.emit(
                "run.repaired",
                f"{log.path.name}: a line cut short by a crash was removed; its item is settled again",
                level=Level.WARNING,
            )
        if log.damaged:
            run.emit(
                "run.damaged",
                f"{log.path.name}: {len(log.damaged):,} broken lines past what was counted were moved to "
                f"{log.damaged_path}; their items are settled again",
                level=Level.ERROR,
            )
    if found or failed:
        run.emit(
            "run.recovered",
            f"{found + failed:,} outcomes written before a crash were read back in",
            data={"succeeded": found, "failed": failed},
        )
    run.refresh()


def _only_refused(log: LineLog) -> bool:
    """Whether there are lines, all of records that were never planned: they come again with their stream."""
    refusals = (msgspec.json.decode(raw, type=_Refusal) for _, _, raw in log.tail())
    verdicts = (refusal.attempts == 0 and refusal.outcome is Outcome.ERRORED for refusal in refusals)
    return next(verdicts, False) and all(verdicts)


def _count_failed(run: HeldRun, numbers: dict[str, int]) -> int:
    """Count the lines of errors.jsonl; returns how many."""
    count = 0
    for page in _pages(run.errors):
        rows = _rows(run, page, "errors.jsonl", ItemState.OPEN)
        end = page[-1][0] + page[-1][1] + 1
        with run.store.transaction():
            for number, lane, lines in _by_batch(page, rows, numbers):
                failures = [_failure(rows[line.id], offset, length, line) for offset, length, line in lines]
                if number is not None:  # an older copy of the state file has them with an earlier batch
                    run.store.results.join(run.id, number, [failure.seq for failure in failures], at=run.ctx.now())
                run.store.results.record(run.id, number, lane, [], failures, errors_end=end, at=run.ctx.now())
        count += len(page)
    return count


def _count_found(run: HeldRun, numbers: dict[str, int]) -> int:
    """Count the lines of results.jsonl; returns how many."""
    count = 0
    for page in _pages(run.results):
        rows = _rows(run, page, "results.jsonl", ItemState.OPEN, ItemState.FAILED)
        _refuse_strange(run, page)
        settle = partial(_succeed, run, page, rows, numbers)
        if late := [row.seq for row in rows.values() if row.state is ItemState.FAILED]:
            take_back(run, late, settle)
        else:
            with run.store.transaction():
                settle()
        count += len(page)
    return count


def _refuse_strange(run: HeldRun, lines: list[Found]) -> None:
    """Every answer of ours names its lane; one that does not was written by somebody else."""
    strange = next((line for _, _, line in lines if line.lane is None), None)
    if strange is not None:
        raise StorageError(
            f"{run.output.local / 'results.jsonl'}: the line for item {strange.id!r} is not as this program writes it",
            hint="remove it; what a batch answered is collected again",
        )


def _succeed(run: HeldRun, page: list[Found], rows: dict[str, ItemRow], numbers: dict[str, int]) -> None:
    end = page[-1][0] + page[-1][1] + 1
    for number, lane, lines in _by_batch(page, rows, numbers):
        totals = Totals()
        for _, _, line in lines:
            usage = line.usage or _UsageOfLine(0, 0, 0)
            totals.add(Usage(usage.input_tokens, usage.output_tokens, usage.cached_input_tokens), line.cost_usd)
        successes = [Success(rows[line.id].seq, offset, length) for offset, length, line in lines]
        run.store.results.record(run.id, number, lane, successes, [], results_end=end, at=run.ctx.now(), totals=totals)


def _failure(row: ItemRow, offset: int, length: int, line: _Line) -> Failure:
    error = line.error
    return Failure(
        seq=row.seq,
        outcome=line.outcome,
        error_type=error.type if error else None,
        error_code=error.code if error else None,
        message=error.message if error else None,
        final=True,
        out_offset=offset,
        out_length=length,
    )


def _pages(log: LineLog) -> Iterator[list[Found]]:
    lines = ((offset, length, msgspec.json.decode(raw, type=_Line)) for offset, length, raw in log.tail())
    while page := list(islice(lines, PAGE)):
        yield page


def _by_batch(
    lines: list[Found], rows: dict[str, ItemRow], numbers: dict[str, int]
) -> Iterable[tuple[int | None, Lane, list[Found]]]:
    """Lines by the batch that answered; where the line names none, its item tells what it waited on."""
    groups: dict[tuple[int | None, Lane], list[Found]] = {}
    for entry in lines:
        line = entry[2]
        if line.batch_id is not None and line.batch_id not in numbers:
            raise StorageError(
                f"the output folder holds an answer of batch {line.batch_id}, which is none of this run's",
                hint="does another run write there? Give each run an --out of its own; `batchctl doctor` shows more",
            )
        number = rows[line.id].batch if line.batch_id is None else numbers[line.batch_id]
        groups.setdefault((number, _lane(line, number)), []).append(entry)
    return ((number, lane, group) for (number, lane), group in groups.items())


def _lane(line: _Line, number: int | None) -> Lane:
    """The lane that wrote a line; a failure outside a batch is of the sync lane, unless a person closed the run."""
    if number is not None:
        return Lane.BATCH
    return line.lane or (Lane.BATCH if line.outcome is Outcome.CANCELED else Lane.SYNC)


def _rows(run: HeldRun, lines: list[Found], name: str, *states: ItemState) -> dict[str, ItemRow]:
    """The items of these lines, which must all be in one of these states: the files hold an item once."""
    ids = [line.id for _, _, line in lines]
    seqs = run.store.items.lookup(run.id, ids)
    rows = run.store.items.by_seqs(run.id, list(seqs.values()))
    by_id = {item_id: rows[seq] for item_id, seq in seqs.items()}
    for item_id in ids:
        row = by_id.get(item_id)
        if row is None or row.state not in states:
            raise StorageError(
                f"{run.output.local / name}: a line for item {item_id!r} does not belong there",
                hint=f"`batchctl doctor {run.name}` shows what is wrong",
            )
    return by_id
