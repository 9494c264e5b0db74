"""Collects an ended batch: its bytes to a file, each line to its item by (batch, custom id), the rest accounted for.

Safe at every line: the download is renamed into place when it is whole, the import skips what is settled already,
and the batch is only called collected when every item it held has an outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Self

import msgspec

from batchctl.core.events import Level
from batchctl.core.ids import Foreign, Generated, Own, resolve
from batchctl.core.model import Answer, CancelCause, ItemState, Lane, Outcome, RunState
from batchctl.files.download import save
from batchctl.files.scan import scan_lines
from batchctl.files.spool import SpoolWriter
from batchctl.providers.base import BatchCheck
from batchctl.runs.held import HeldRun
from batchctl.runs.input_files import discard_file
from batchctl.runs.recording import Slice
from batchctl.runs.reopening import take_back
from batchctl.state.rows import BatchRow, ItemRow

CHUNK = 5_000  # result lines a transaction
CHUNK_TEXT = 32_000_000  # characters of answers after which a transaction takes no more lines: long ones fill memory
LOOKS = 3  # looks at an ended batch before a request without a line counts as missing (field report 107)
CONFIRM_LINES = 50  # result lines compared before an adopted batch is believed to be ours


@dataclass(slots=True)
class Tally:
    """What a reading of a result file held besides answers."""

    foreign: int = 0  # lines of no item of this batch
    odd: int = 0  # lines that say nothing usable


async def collect(run: HeldRun, batch: BatchRow, check: BatchCheck) -> bool:
    """Bring an ended batch's answers in; true when it is collected, false when it must be looked at again.

    Raises:
        ProviderError: the download failed; nothing is lost, the next pass tries again.
    """
    path = run.work / "downloads" / f"batch-{batch.number}.jsonl"
    looks = run.store.batches.looked(run.id, batch.number)
    tally = Tally()
    if check.outputs:
        await save(run.provider.results(check), path)
        if not batch.certain and not _confirm(run, batch, path):
            return False
        async with run.importing:
            tally = await import_file(run, batch, path)
        path.unlink(missing_ok=True)
    held = run.store.items.count_members(run.id, batch.number)
    if held and (looks < LOOKS or _just_ended(run, batch)):
        run.emit(
            "batch.incomplete",
            f"batch {batch.number} ended with {held:,} requests not in its results; looking again",
            batch=batch.number,
            level=Level.WARNING,
        )
        return False
    if _answered_without_results(run, batch, check):
        return False
    _account_for_rest(run, batch, check)
    run.store.batches.collected(run.id, batch.number, at=run.ctx.now(), quarantined=tally.foreign + tally.odd)
    await discard_file(run, batch)
    _report(run, batch.number)
    return True


def _just_ended(run: HeldRun, batch: BatchRow) -> bool:
    """Whether its looks may have come in quick succession, so that what is missing may only be late.

    An end far ahead was written by a clock that was wrong, and says nothing.
    """
    patience = timedelta(seconds=(LOOKS - 1) * run.settings.interval)
    return batch.ended_at is not None and abs(run.ctx.now() - batch.ended_at) < patience


def _answered_without_results(run: HeldRun, batch: BatchRow, check: BatchCheck) -> bool:
    """Whether the provider counts answers but names no results; buying them again would pay twice."""
    answered = check.counts.get("completed", 0) + check.counts.get("succeeded", 0)
    if check.outputs or not answered or not run.store.items.count_members(run.id, batch.number):
        return False
    run.gone.add(batch.number)
    run.emit(
        "batch.no_results",
        f"batch {batch.number} ({batch.batch_id}): the provider counts {answered:,} answers and names no results; "
        "nothing is sent again",
        batch=batch.number,
        level=Level.ERROR,
    )
    return True


def _confirm(run: HeldRun, batch: BatchRow, path: Path) -> bool:
    """Whether an adopted batch is ours, by most of the custom ids of its first results; gives it up where it is not."""
    answers = [answer for answer in _answers(run, path, limit=CONFIRM_LINES) if isinstance(answer, Answer)]
    rows = _rows_of(run, batch, answers)
    ids = {answer.custom_id for answer in answers}
    if 2 * len(rows) > len(ids) or not ids:  # a stray line, or no line at all, says nothing against it
        run.store.batches.confirm(run.id, batch.number)
        return True
    run.store.batches.unknown(run.id, batch.number, f"batch {batch.batch_id} holds other requests than ours")
    run.emit(
        "batch.disowned",
        f"batch {batch.number}: {batch.batch_id} had the right size and time but holds other requests; "
        "its create is unknown again",
        batch=batch.number,
        level=Level.ERROR,
    )
    path.unlink(missing_ok=True)
    return False


def _answers(run: HeldRun, path: Path, limit: int | None = None) -> Iterator[Answer | str]:
    """Each line of a result file as an answer, or as the raw text of a line that says nothing usable."""
    for count, line in enumerate(scan_lines(path)):
        if limit is not None and count >= limit:
            return
        try:
            yield run.form.parse_result(line.raw)
        except ValueError:
            yield line.raw.decode("utf-8", "replace")


async def import_file(run: HeldRun, batch: BatchRow, path: Path) -> Tally:
    """Settle every line of a downloaded result file, a slice a transaction; repeating it changes nothing."""
    tally = Tally()
    chunk: list[Answer] = []
    held = 0
    with _Quarantine(run, batch) as quarantine:
        for answer in _answers(run, path):
            if isinstance(answer, str):
                tally.odd += 1
                quarantine.keep(answer)
                continue
            chunk.append(answer)
            held += len(answer.text or "")
            if len(chunk) >= CHUNK or held >= CHUNK_TEXT:
                _import_chunk(run, batch, chunk, tally, quarantine)
                chunk, held = [], 0
                await asyncio.sleep(0)  # other downloads go on between slices
        _import_chunk(run, batch, chunk, tally, quarantine)
    if tally.foreign or tally.odd:
        run.emit(
            "batch.odd_lines",
            f"batch {batch.number}: {tally.foreign:,} result lines fit no request of it, {tally.odd:,} are unreadable; "
            f"kept in {quarantine.path}",
            batch=batch.number,
            level=Level.WARNING,
        )
    return tally


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


def _rows_of(run: HeldRun, batch: BatchRow, answers: list[Answer]) -> dict[str, ItemRow]:
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


def _import_chunk(run: HeldRun, batch: BatchRow, answers: list[Answer], tally: Tally, quarantine: _Quarantine) -> None:
    if not answers:
        return
    rows = _rows_of(run, batch, answers)
    part = Slice(run, Lane.BATCH, batch)
    second_thoughts: list[tuple[ItemRow, Answer]] = []
    settled: set[int] = set()
    for answer in _successes_first(answers):
        row = rows.get(answer.custom_id)
        if row is None:
            tally.foreign += 1
            quarantine.keep(repr(answer))
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


def _silent_outcome(run: HeldRun, batch: BatchRow, check: BatchCheck) -> Outcome:
    """What became of a request the results do not mention."""
    if run.row.state is RunState.CANCELED or batch.cancel_cause is CancelCause.ASKED:
        return Outcome.CANCELED
    if batch.cancel_cause is CancelCause.DEADLINE or check.expired:
        return Outcome.EXPIRED
    return Outcome.CANCELED if check.canceled else Outcome.MISSING


def _account_for_rest(run: HeldRun, batch: BatchRow, check: BatchCheck) -> None:
    """Give every request without a line its outcome, so that none is left waiting for a batch that is over."""
    outcome = _silent_outcome(run, batch, check)
    while page := run.store.items.members(run.id, batch.number, after_seq=0, limit=CHUNK):
        rows = run.store.items.by_seqs(run.id, [member.seq for member in page])
        part = Slice(run, Lane.BATCH, batch)
        for row in rows.values():
            part.take(row, Answer(custom_id="", outcome=outcome))
        part.commit()


def _report(run: HeldRun, number: int) -> None:
    batch = run.batch(number)
    counts = {outcome: count for outcome in Outcome if (count := getattr(batch, str(outcome)))}
    said = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items()) or "nothing"
    run.emit(
        "batch.collected",
        f"batch {number} collected ({batch.batch_id}): {said} of {batch.requests:,}",
        batch=number,
        data={"batch_id": batch.batch_id, "requests": batch.requests, "round": batch.round}
        | {str(outcome): count for outcome, count in counts.items()},
    )
