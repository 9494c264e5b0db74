"""Halves a batch the provider finds too large; a single request that is too large fails. No round is spent."""

from __future__ import annotations

from batchctl.core.errors import ProviderError
from batchctl.core.events import Level
from batchctl.core.model import Answer, ErrorKind, ItemError, Lane, Outcome
from batchctl.runs.held import HeldRun
from batchctl.runs.lines import members
from batchctl.runs.recording import Slice
from batchctl.state.rows import BatchRow


def halve(run: HeldRun, batch: BatchRow, reason: str) -> tuple[int, int]:
    """Replace a refused batch by two of half its requests (field report 34)."""
    seqs = [member.seq for member in members(run, batch)]
    first, second = run.store.batches.split(run.id, batch.number, seqs[len(seqs) // 2])
    run.emit(
        "batch.halved",
        f"batch {batch.number} was refused as too large ({batch.requests:,} requests, {batch.size:,} bytes sent: "
        f"{reason}); halved into batches {first} and {second}",
        batch=batch.number,
        level=Level.WARNING,
        data={"requests": batch.requests, "bytes": batch.size, "into": [first, second]},
    )
    return first, second


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
