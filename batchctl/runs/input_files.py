"""Deletes input files we uploaded once nothing needs them: they hold prompts, and an account's storage is finite."""

from __future__ import annotations

from batchctl.core.errors import ProviderError
from batchctl.core.events import Level
from batchctl.runs.held import HeldRun
from batchctl.state.rows import BatchRow

LONGEST_PAUSE = 5.0  # seconds that a pass waits for a deletion; what stays is left to the next one


async def discard_file(run: HeldRun, batch: BatchRow) -> None:
    """Delete the input file of a batch that is collected or given up; one that stays is said, not an error (60, 63)."""
    if run.deletion_pause:
        return  # refused a moment ago: it is deleted with the leftovers
    error = await _delete(run, batch)
    if error is not None:
        run.emit(
            "file.kept",
            f"batch {batch.number}: its input file {batch.file_id} could not be deleted yet ({error.message})",
            batch=batch.number,
            level=Level.WARNING,
        )


async def discard_leftovers(run: HeldRun) -> None:
    """Delete input files that stayed because a deletion failed, or the process died before it."""
    spent = run.store.batches.with_spent_files(run.id)
    if spent and run.deletion_pause:
        await run.ctx.stop.wait(run.deletion_pause)
        run.deletion_pause = 0.0
    for batch in spent:
        if await _delete(run, batch) is not None:
            return  # the next pass tries again


async def _delete(run: HeldRun, batch: BatchRow) -> ProviderError | None:
    """Delete a batch's input file where it was uploaded; elsewhere it would only seem to be gone."""
    if batch.file_id is None or batch.address not in (None, (await run.account()).address):
        return None
    try:
        await run.provider.discard(batch.file_id)
    except ProviderError as error:
        run.deletion_pause = min(error.retry_after or run.settings.interval, LONGEST_PAUSE)
        return error
    run.store.batches.file_deleted(run.id, batch.number, batch.file_id)
    return None
