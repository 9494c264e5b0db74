"""Halves a batch that is too large, or never let in; a single request that is too large fails. No round is spent."""

from __future__ import annotations

from batchctl.core.errors import ProviderError
from batchctl.core.events import Level
from batchctl.core.model import RUNNING, Answer, ErrorKind, ItemError, Lane, Outcome
from batchctl.runs.held import HeldRun
from batchctl.runs.input_files import discard_file
from batchctl.runs.lines import members
from batchctl.runs.recording import Slice
from batchctl.state.rows import BatchRow

SMALLER_AFTER = 3  # refusals in a row, with nothing else of the run at the provider, before a batch is halved
SMALLEST = 10  # requests; no halves smaller than this are made for lack of room


async def halve(run: HeldRun, batch: BatchRow, reason: str) -> None:
    """Replace a refused batch by two of half its requests, and delete its input file (field reports 34, 63)."""
    uploaded = run.batch(batch.number)
    seqs = [member.seq for member in members(run, batch)]
    first, second = run.store.batches.split(run.id, batch.number, seqs[len(seqs) // 2])
    run.emit(
        "batch.halved",
        f"batch {batch.number} was {reason} ({batch.requests:,} requests, {batch.size:,} bytes sent); "
        f"halved into batches {first} and {second}",
        batch=batch.number,
        level=Level.WARNING,
        data={"requests": batch.requests, "bytes": batch.size, "into": [first, second]},
    )
    await discard_file(run, uploaded)


async def halve_for_room(run: HeldRun, batch: BatchRow) -> bool:
    """Halve a waiting batch that was refused again and again although nothing else of the run takes its room.

    Some servers charge a whole batch to limits it can never fit under (field report 67). True where it was halved.
    """
    refusals = run.batch(batch.number).refusals
    alone = not run.store.batches.in_state(run.id, *RUNNING)
    if refusals % SMALLER_AFTER or not alone or batch.requests < 2 * SMALLEST:
        return False
    await halve(run, batch, f"refused {refusals} times in a row")
    return True


def refuse_single(run: HeldRun, batch: BatchRow, error: ProviderError) -> None:
    """Fail the only request of a batch that was refused as too large."""
    reason = ItemError(error.type or "request_too_large", error.message, ErrorKind.PERMANENT, code=error.code)
    seqs = [member.seq for member in members(run, batch)]
    with run.store.transaction(durable=True):
        part = Slice(run, Lane.BATCH, batch)
        for row in run.store.items.by_seqs(run.id, seqs).values():
            part.take(row, Answer(custom_id="", outcome=Outcome.ERRORED, error=reason))
        part.commit()
        run.store.batches.reject(
            run.id, batch.number, [{"code": reason.type, "message": reason.message, "line": None}], at=run.ctx.now()
        )
