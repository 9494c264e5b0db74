"""Settles an unknown create by a person's word, as far as the provider's lists do not say otherwise."""

from __future__ import annotations

from batchctl.core.errors import Fault, InputError, ProviderError
from batchctl.core.ids import key_batch
from batchctl.core.model import IN_DOUBT, BatchState
from batchctl.files.sentlog import Sent
from batchctl.providers.base import Absent, Created, Found, Submission, Unknown
from batchctl.providers.errors import UNREADABLE
from batchctl.runs.accounts import look_elsewhere
from batchctl.runs.context import Context
from batchctl.runs.held import HeldRun, hold
from batchctl.runs.recovering import recover
from batchctl.runs.submitting import record_created, submission_of
from batchctl.state.rows import BatchRow, stamp
from batchctl.state.store import Store


async def adopt(ctx: Context, name: str, batch_id: str | None, *, absent: int | None, number: int | None) -> None:
    """Settle an unknown create by hand: name the provider's batch, or say that there is none.

    Args:
        absent: number of the batch that surely was never created.
        number: which unknown batch `batch_id` is, where there are several; also one that waits, where a person knows
            better than this older copy of the state file.

    Raises:
        InputError: nothing is unknown, or the named batch does not fit.
    """
    with Store.open(ctx.state_path) as store, hold(ctx, store, name) as run:
        recover(run)
        waiting = None if number is None else store.batches.get(run.id, number)
        if batch_id is not None and waiting is not None and waiting.state is BatchState.WAITING:
            batch = waiting
        else:
            batch = _unknown_batch(run, absent if absent is not None else number)
        try:
            if batch_id is None:
                await _declare_absent(run, batch)
            else:
                await _adopt(run, batch, batch_id)
        finally:
            await run.aclose()
        run.store.runs.set_needs(run.id, None, at=ctx.now())


def _unknown_batch(run: HeldRun, number: int | None) -> BatchRow:
    unknown = run.store.batches.in_state(run.id, *IN_DOUBT)
    if number is not None:
        unknown = [batch for batch in unknown if batch.number == number]
    if not unknown:
        raise InputError(
            f"run {run.name} has no batch whose create is unknown" + (f" with number {number}" if number else ""),
            hint=f"`batchctl batches {run.name}` shows where its batches stand",
        )
    if len(unknown) > 1:
        numbers = ", ".join(str(batch.number) for batch in unknown)
        raise InputError(f"several creates are unknown: {numbers}", hint="say which one with --batch N")
    return unknown[0]


async def _declare_absent(run: HeldRun, batch: BatchRow) -> None:
    """Take a person's word that a create never arrived, where the provider's lists do not say otherwise."""
    elsewhere = await look_elsewhere(run, batch)
    if batch.state is not BatchState.UNKNOWN and not elsewhere:
        raise InputError(
            f"batch {batch.number} is still being settled", hint=f"`batchctl poll {run.name}` asks the provider's lists"
        )
    found = await _look(run, submission_of(run, batch))
    if isinstance(found, Found) and found.certain:
        raise InputError(
            f"batch {batch.number} was created: it is {found.created.batch_id}",
            hint=f"`batchctl adopt {run.name} {found.created.batch_id}` takes it",
        )
    run.store.batches.back_to_waiting(
        run.id, batch.number, not_before=None, refusals=batch.refusals, keep_file=not elsewhere
    )
    run.emit("batch.absent", f"batch {batch.number}: a person says it was never created", batch=batch.number)


async def _look(run: HeldRun, submission: Submission) -> Found | Absent | Unknown | None:
    """What the provider's lists say; None where it has none, or they cannot be understood, so that they say nothing."""
    try:
        return await run.provider.find(submission, run.store.batches.known_ids(run.id))
    except ProviderError as error:
        if error.fault in (Fault.NOT_FOUND, Fault.PERMANENT) or error.type == UNREADABLE:
            return None
        raise


async def _adopt(run: HeldRun, batch: BatchRow, batch_id: str) -> None:
    try:
        check = await run.provider.check(batch_id)
    except ProviderError as error:
        if error.fault not in (Fault.NOT_FOUND, Fault.PERMANENT):
            raise
        raise InputError(
            f"{run.row.provider} knows no batch {batch_id!r}: {error.message}",
            hint="its console lists the batches with their ids; is the key one of the same account?",
        ) from None
    total = sum(check.counts.values()) if "total" not in check.counts else check.counts["total"]
    if total and total != batch.requests:
        raise InputError(
            f"{batch_id} has {total:,} requests, batch {batch.number} has {batch.requests:,}: it is another batch"
        )
    if check.key is not None and key_batch(check.key, run.row.token) != batch.number:
        raise InputError(f"{batch_id} carries the key of another batch ({check.key})")
    if owner := run.store.batches.owner(batch_id):
        raise InputError(f"{batch_id} is a batch of run {owner} already", hint=f"see `batchctl batches {owner}`")
    with run.store.transaction(durable=True):
        if batch.state is BatchState.WAITING:
            key, now = f"{run.row.token}-adopted-{batch_id}", run.ctx.now()
            run.sent.note(Sent(batch.number, batch.sends + 1, key, stamp(now), batch.requests))
            run.store.batches.intend(run.id, batch.number, key, now)
        record_created(run, batch.number, Created(batch_id, check.status, check.expires_at), certain=False)
    run.emit(
        "batch.adopted",
        f"batch {batch.number} is {batch_id}; its results will confirm it",
        batch=batch.number,
        data={"batch_id": batch_id},
    )
