"""Takes a canceled run's work back: what was never sent is withdrawn, what runs at the provider is asked to stop."""

from __future__ import annotations

from batchctl.core.errors import Fault, ProviderError
from batchctl.core.events import Level
from batchctl.core.model import BatchState, CancelCause
from batchctl.runs.held import HeldRun
from batchctl.runs.input_files import discard_file
from batchctl.runs.recalling import recall


async def withdraw_everything(run: HeldRun) -> None:
    """Leave no batch of a canceled run waiting or running; a cancel that fails is asked for again by the next look.

    Raises:
        ProviderError: a systemic fault.
    """
    recall(run)
    for batch in run.store.batches.in_state(run.id, BatchState.WAITING):
        run.store.batches.withdraw(run.id, batch.number)
        await discard_file(run, batch)
    for batch in run.store.batches.in_state(run.id, BatchState.IN_PROGRESS):
        assert batch.batch_id is not None
        run.store.batches.canceling(run.id, batch.number, CancelCause.ASKED)
        if not batch.certain:
            run.emit(
                "batch.not_canceled",
                f"batch {batch.number} ({batch.batch_id}) may be somebody else's: not canceled, its results tell",
                batch=batch.number,
                level=Level.WARNING,
            )
            continue
        run.emit("batch.canceling", f"batch {batch.number} ({batch.batch_id}): cancel asked for", batch=batch.number)
        try:
            await run.provider.cancel(batch.batch_id)
        except ProviderError as error:
            if error.fault is Fault.SYSTEMIC:
                raise
            run.emit(
                "batch.cancel_failed",
                f"batch {batch.number} ({batch.batch_id}): cancel not taken yet ({error.message}); asking again",
                batch=batch.number,
                level=Level.WARNING,
            )
