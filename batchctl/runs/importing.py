"""Brings the lines of a downloaded result file in: each to its item by (batch, custom id), the odd ones kept aside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec

from batchctl.core.events import Level
from batchctl.core.ids import Foreign, Generated, Own, resolve
from batchctl.core.model import Answer, CancelCause, ErrorKind, ItemError, ItemState, Lane, Outcome, RunState
from batchctl.files.scan import scan_lines
from batchctl.files.spool import SpoolWriter
from batchctl.providers.decoding import UnreadableResultError
from batchctl.runs.held import HeldRun
from batchctl.runs.recording import Slice
from batchctl.runs.reopening import take_back
from batchctl.state.rows import BatchRow, ItemRow

CHUNK = 5_000  # result lines a transaction
CHUNK_TEXT = 32_000_000  # characters of answers after which a transaction takes no more lines: long ones fill memory


@dataclass(slots=True)
class Tally:
    """What a reading of a result file held besides answers."""

    foreign: int = 0  # lines of no item of this batch
    odd: int = 0  # lines that say nothing usable
    nameless: int = 0  # those of them that do not even tell whose they are


@dataclass(frozen=True, slots=True)
class Odd:
    """A line that says nothing usable; `custom_id` where it tells whose it is."""

    line: str
    custom_id: str | None
    reason: str


def answers_in(run: HeldRun, path: Path, limit: int | None = None) -> Iterator[Answer | Odd]:
    """Each line of a result file."""
    for count, line in enumerate(scan_lines(path)):
        if limit is not None and count >= limit:
            return
        try:
            yield run.form.parse_result(line.raw)
        except UnreadableResultError as error:
            yield Odd(line.raw.decode("utf-8", "replace"), error.custom_id, str(error))


async def import_file(run: HeldRun, batch: BatchRow, path: Path) -> Tally:
    """Settle every readable line of a downloaded result file; repeating it changes nothing."""
    tally = Tally()
    strangers: set[str] = set()
    with _Quarantine(run, batch) as quarantine:

        def readable() -> Iterator[Answer]:
            for answer in answers_in(run, path):
                if isinstance(answer, Answer):
                    yield answer
                else:
                    tally.odd += 1
                    tally.nameless += answer.custom_id is None
                    quarantine.keep(answer.line)

        def foreign(answer: Answer) -> None:
            tally.foreign += 1
            strangers.add(answer.custom_id)

        await _import(run, batch, readable(), foreign)
        if strangers:
            for line in _lines_of(run, path, strangers):
                quarantine.keep(line)
    if tally.foreign or tally.odd:
        run.emit(
            "batch.odd_lines",
            f"batch {batch.number}: {tally.foreign:,} result lines fit no request of it, {tally.odd:,} are unreadable; "
            f"kept in {quarantine.path}",
            batch=batch.number,
            level=Level.WARNING,
        )
    return tally


def _lines_of(run: HeldRun, path: Path, custom_ids: AbstractSet[str]) -> Iterator[str]:
    """The readable lines of a result file that carry one of these ids, as they came."""
    for line in scan_lines(path):
        with suppress(UnreadableResultError):
            if run.form.parse_result(line.raw).custom_id in custom_ids:
                yield line.raw.decode("utf-8", "replace")


async def import_unreadable(run: HeldRun, batch: BatchRow, path: Path, tally: Tally) -> None:
    """Fail the items whose answers stay unreadable, with what came: they may be paid for, so they never go again.

    Args:
        tally: told of those that fit no item of this batch.
    """

    def foreign(_: Answer) -> None:
        tally.foreign += 1

    answers = (
        Answer(
            odd.custom_id,
            Outcome.INVALID,
            text=odd.line,
            error=ItemError("unreadable_answer", odd.reason, ErrorKind.PERMANENT),
        )
        for odd in answers_in(run, path)
        if isinstance(odd, Odd) and odd.custom_id is not None
    )
    await _import(run, batch, answers, foreign)


async def _import(run: HeldRun, batch: BatchRow, answers: Iterator[Answer], foreign: Callable[[Answer], None]) -> None:
    """Settle answers, a slice a transaction; those of no item of this batch go to `foreign`."""
    chunk: list[Answer] = []
    held = 0
    for answer in answers:
        chunk.append(answer)
        held += len(answer.text or "")
        if len(chunk) >= CHUNK or held >= CHUNK_TEXT:
            _import_chunk(run, batch, chunk, foreign)
            chunk, held = [], 0
            await asyncio.sleep(0)  # other downloads go on between slices
    _import_chunk(run, batch, chunk, foreign)


class _Quarantine:
    """Keeps the lines of one reading that fit nowhere, so that a person can look at them; a new reading starts anew."""

    def __init__(self, run: HeldRun, batch: BatchRow) -> None:
        self.path = run.work / f"quarantine-{batch.number}.jsonl"
        self._batch_id = batch.batch_id
        self._writer: SpoolWriter | None = None
        self.path.unlink(missing_ok=True)

    def keep(self, line: str) -> None:
        if self._writer is None:
            self._writer = SpoolWriter(self.path)
        self._writer.append(msgspec.json.encode({"batch_id": self._batch_id, "line": line}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._writer is not None:
            self._writer.close()


def rows_of(run: HeldRun, batch: BatchRow, answers: list[Answer]) -> dict[str, ItemRow]:
    """The item of each custom id, for the custom ids that belong (or belonged) to this batch."""
    seqs: dict[str, int] = {}
    own: list[str] = []
    for answer in answers:
        match resolve(answer.custom_id, run.row.token):
            case Own():
                own.append(answer.custom_id)
            case Generated(seq=seq):
                seqs[answer.custom_id] = seq
            case Foreign():
                pass
    rows = run.store.items.by_ids(run.id, own)
    generated = run.store.items.by_seqs(run.id, list(seqs.values()))
    rows.update((custom_id, generated[seq]) for custom_id, seq in seqs.items() if seq in generated)
    elsewhere = [row.seq for row in rows.values() if row.batch != batch.number]
    if not elsewhere:
        return rows
    formerly = run.store.items.has_member(run.id, batch.number, elsewhere)
    return {custom_id: row for custom_id, row in rows.items() if row.batch == batch.number or row.seq in formerly}


def _import_chunk(run: HeldRun, batch: BatchRow, answers: list[Answer], foreign: Callable[[Answer], None]) -> None:
    if not answers:
        return
    rows = rows_of(run, batch, answers)
    part = Slice(run, Lane.BATCH, batch)
    second_thoughts: list[tuple[ItemRow, Answer]] = []
    settled: set[int] = set()
    for answer in _successes_first(answers):
        row = rows.get(answer.custom_id)
        if row is None:
            foreign(answer)
            continue
        late = row.batch != batch.number
        if row.seq in settled or row.state is ItemState.SUCCEEDED:
            continue  # repeated, or answered by another attempt
        if (late or row.state is ItemState.FAILED) and not part.accepts(answer):
            continue  # the item has moved on; only an answer is worth keeping
        settled.add(row.seq)
        if row.state is ItemState.FAILED:
            second_thoughts.append((row, answer))
            continue
        part.take(row, _in_our_words(run, batch, answer))
    part.commit()
    _revive(run, batch, second_thoughts)
    if part.systemic is not None:
        run.store.runs.set_needs(run.id, part.systemic.message, at=run.ctx.now())
        run.systemic = part.systemic


def _revive(run: HeldRun, batch: BatchRow, answers: list[tuple[ItemRow, Answer]]) -> None:
    """Move items from errors.jsonl to results.jsonl whose answer came after they had failed for good."""
    if not answers:
        return
    part = Slice(run, Lane.BATCH, batch)
    for row, answer in answers:
        part.take(row, answer)
    take_back(run, [row.seq for row, _ in answers], part.commit)
    run.emit(
        "batch.late_answers",
        f"batch {batch.number}: {len(answers):,} failed items were answered after all; "
        "they moved from errors.jsonl to results.jsonl",
        batch=batch.number,
        data={"revived": len(answers)},
    )


def _successes_first(answers: list[Answer]) -> list[Answer]:
    """Where a provider repeats a request's line, an answer wins over an error."""
    if len({answer.custom_id for answer in answers}) == len(answers):
        return answers
    return sorted(answers, key=lambda answer: answer.outcome is not Outcome.SUCCEEDED)


def _in_our_words(run: HeldRun, batch: BatchRow, answer: Answer) -> Answer:
    """A line canceled because we gave up on a late batch counts as expired: its request may go again."""
    late = batch.cancel_cause is CancelCause.DEADLINE and run.row.state is not RunState.CANCELED
    if answer.outcome is Outcome.CANCELED and late:
        return replace(answer, outcome=Outcome.EXPIRED)
    return answer
