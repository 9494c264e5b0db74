"""Deletes input files we uploaded once nothing needs them: they hold prompts, and an account's storage is finite."""

from __future__ import annotations

from batchctl.core.errors import ProviderError
from batchctl.core.events import Level
from batchctl.runs.held import HeldRun
from batchctl.state.rows import BatchRow


async def discard_file(run: HeldRun, batch: BatchRow) -> None:
    """Delete the input file of a batch that is collected or given up; one that stays is said, not an error (60, 63)."""
    if batch.file_id is None:
        return
    try:
        await run.provider.discard(batch.file_id)
    except ProviderError as error:
        run.emit(
            "file.kept",
            f"batch {batch.number}: its input file {batch.file_id} could not be deleted ({error.message})",
            batch=batch.number,
            level=Level.WARNING,
        )
