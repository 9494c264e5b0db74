"""Collects an ended batch: its bytes to a file, each line to its item by (batch, custom id), the rest accounted for.

Safe at every line: the download is renamed into place when it is whole, the import skips what is settled already,
and the batch is only called collected when every item it held has an outcome.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from batchctl.core.events import Level
from batchctl.core.model import Answer, CancelCause, Lane, Outcome, RunState
from batchctl.core.words import counted
from batchctl.files.download import save
from batchctl.providers.base import BatchCheck
from batchctl.runs.held import HeldRun
from batchctl.runs.importing import Tally, answers_in, import_file, import_unreadable, rows_of
from batchctl.runs.input_files import discard_file
from batchctl.runs.recording import Slice
from batchctl.state.rows import BatchRow

PAGE = 5_000  # requests without a line that are given their outcome in one transaction
LOOKS = 3  # looks at an ended batch before a request without a line counts as missing (field report 107)
UNEXPLAINED_LOOKS = 10  # the same where what the provider counts speaks for answers, or does not rule them out
SEEMS_CUT = 3  # answers the results lack, at least, before they seem cut
CONFIRM_LINES = 50  # result lines compared before an adopted batch is believed to be ours


async def collect(run: HeldRun, batch: BatchRow, check: BatchCheck) -> None:
    """Bring an ended batch's answers in; where some are not there yet, it stays as it is and is looked at again.

    Raises:
        ProviderError: the download failed; nothing is lost, the next pass tries again.
    """
    path = _download(run, batch)
    tally = Tally()
    if check.outputs:
        await save(run.provider.results(check), path)
    if not batch.certain and not _confirm(run, batch, path if check.outputs else None):
        return
    if check.outputs:
        async with run.importing:
            tally = await import_file(run, batch, path)
    looks = run.store.batches.looked(run.id, batch.number)  # a download that failed is none
    held = run.store.items.count_members(run.id, batch.number)
    patience = UNEXPLAINED_LOOKS if check.unexplained or _seems_cut(run, batch, check) else LOOKS
    if held and (looks < patience or _just_ended(run, batch, patience)):
        run.emit(
            "batch.incomplete",
            f"batch {batch.number} ended with {held:,} requests not in its results; looking again",
            batch=batch.number,
            level=Level.WARNING,
        )
        return
    if held and tally.odd:
        async with run.importing:
            await import_unreadable(run, batch, path, tally)
    if why := _may_be_answered(run, batch, check, tally):
        _withhold(run, batch, why)
        return
    path.unlink(missing_ok=True)
    _account_for_rest(run, batch, check)
    run.store.batches.collected(run.id, batch.number, at=run.ctx.now(), quarantined=tally.foreign + tally.odd)
    await discard_file(run, batch)
    _report(run, batch.number)


def _seems_cut(run: HeldRun, batch: BatchRow, check: BatchCheck) -> bool:
    """Whether the results hold half of the answers the provider counts, or fewer: no proof, but odd."""
    batch = run.batch(batch.number)
    claimed = check.counts.get("succeeded", check.counts.get("completed", 0))
    came = batch.succeeded + batch.invalid
    return claimed - came >= SEEMS_CUT and claimed >= 2 * came


def _just_ended(run: HeldRun, batch: BatchRow, looks: int) -> bool:
    """Whether its looks may have come in quick succession, so that what is missing may only be late.

    An end far ahead was written by a clock that was wrong, and says nothing.
    """
    patience = timedelta(seconds=(looks - 1) * run.settings.interval)
    return batch.ended_at is not None and abs(run.ctx.now() - batch.ended_at) < patience


def _may_be_answered(run: HeldRun, batch: BatchRow, check: BatchCheck, tally: Tally) -> str | None:
    """Why requests without a line may be answered all the same, so that buying them again may pay twice; else None."""
    if not run.store.items.count_members(run.id, batch.number):
        return None
    if tally.nameless:
        return f"{counted(tally.nameless, 'result line')} can neither be read nor told whose answer it is"
    if tally.foreign:
        return f"{counted(tally.foreign, 'result line')} fit no request of it, and may be answers all the same"
    if not check.unexplained:
        return None
    answered = check.counts.get("completed", 0)
    said = f"counts {counted(answered, 'answer')}" if answered else "does not tell what became of it"
    return f"the provider {said} and names no results"


def _withhold(run: HeldRun, batch: BatchRow, why: str) -> None:
    run.withheld[batch.number] = why
    run.emit(
        "batch.no_results",
        f"batch {batch.number} ({batch.batch_id}): {why}; nothing is sent again",
        batch=batch.number,
        level=Level.ERROR,
    )


def _confirm(run: HeldRun, batch: BatchRow, path: Path | None) -> bool:
    """Whether an adopted batch is ours, by most of the custom ids of its first results; gives it up where it is not."""
    lines = () if path is None else answers_in(run, path, limit=CONFIRM_LINES)
    answers = [answer for answer in lines if isinstance(answer, Answer)]
    ids = {answer.custom_id for answer in answers}
    if not ids:
        if run.store.batches.looked(run.id, batch.number) >= UNEXPLAINED_LOOKS:
            _withhold(run, batch, "nothing in its results tells whether it is ours")
        return False
    if 2 * len(rows_of(run, batch, answers)) > len(ids):  # a stray line says nothing against it
        run.store.batches.confirm(run.id, batch.number)
        return True
    disown(run, batch, "had the right size and time but holds other requests")
    return False


def disown(run: HeldRun, batch: BatchRow, why: str) -> None:
    """Give up an adopted batch: what was taken for it is not, so its create is unknown again."""
    _download(run, batch).unlink(missing_ok=True)
    run.store.batches.unknown(run.id, batch.number, f"batch {batch.batch_id} {why}")
    run.emit(
        "batch.disowned",
        f"batch {batch.number}: {batch.batch_id} {why}; its create is unknown again",
        batch=batch.number,
        level=Level.ERROR,
    )


def _download(run: HeldRun, batch: BatchRow) -> Path:
    return run.work / "downloads" / f"batch-{batch.number}.jsonl"


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
    while page := run.store.items.members(run.id, batch.number, after_seq=0, limit=PAGE):
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
