"""Sends waiting batches: a committed intent, one create, the id committed at once. Nothing here sends twice."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from typing import IO

from batchctl.core.errors import Fault, ProviderError, SystemicError
from batchctl.core.events import Level
from batchctl.core.ids import intent_key
from batchctl.core.model import BatchState
from batchctl.core.packing import QueueLimits, admissible
from batchctl.core.retry import LONGEST_PAUSE, backoff, is_due
from batchctl.core.words import counted
from batchctl.files.sentlog import Sent
from batchctl.providers.base import Created, Submission
from batchctl.runs.budget import affordable
from batchctl.runs.held import HeldRun
from batchctl.runs.input_files import discard_file
from batchctl.runs.lines import check_requests, drop_own_lines, endpoint_of, open_batch_lines, size_of
from batchctl.runs.splitting import halve, halve_for_room, refuse_single
from batchctl.state.rows import BatchRow, stamp

TOO_MANY = 429
REFUSAL_PAUSE = 60.0  # seconds, doubled with each refusal in a row up to MAX_REFUSAL_PAUSE
MAX_REFUSAL_PAUSE = 1800.0
FILE_PAUSE = 5.0  # seconds, longer with each create that does not know the uploaded file yet
USUAL_INTERVAL = 60.0  # seconds; the pauses are meant for it
FILE_PATIENCE = 5  # creates that may not know the uploaded file yet before it is uploaded anew (field report 49)


async def admit(run: HeldRun) -> None:
    """Send waiting batches, one after the other, as far as the queue limits let them in.

    Batches go in one at a time, so that a lost answer leaves one create in doubt and not many.

    Raises:
        SystemicError: the account or configuration is at fault; nothing of the run is lost.
    """
    while not run.ctx.stop.signal_number:
        batch = _next(run)
        if batch is None or not affordable(run, batch) or not await _send(run, batch):
            return


def _next(run: HeldRun) -> BatchRow | None:
    """The first waiting batch that fits under the limits now."""
    now = run.ctx.now()
    waiting = run.store.batches.in_state(run.id, BatchState.WAITING)
    ready = [batch for batch in waiting if is_due(batch.not_before, now, 0.0)]
    limits = QueueLimits(requests=run.settings.max_queued_requests, tokens=run.settings.max_enqueued_tokens)
    opened = run.store.batches.open_load(run.id)
    return next(
        (
            batch
            for batch in ready
            if admissible(batch.requests, batch.tokens, opened.requests, opened.tokens, opened.batches, limits)
        ),
        None,
    )


def submission_of(run: HeldRun, batch: BatchRow) -> Submission:
    """The create call of a batch that is intended, as data; the same for sending and for settling."""
    assert batch.key is not None
    assert batch.intent_at is not None

    def lines() -> IO[bytes]:
        return open_batch_lines(run, batch)

    return Submission(
        key=batch.key,
        requests=batch.requests,
        size=size_of(run, batch),
        endpoint=endpoint_of(run, batch),
        open_lines=lines,
        intent_at=batch.intent_at,
        file_id=batch.file_id,
        headers=run.headers,
        fence=batch.fence,
    )


async def _send(run: HeldRun, batch: BatchRow) -> bool:
    """Create one batch; true when sending may go on, because it was accepted or made smaller.

    All that can fail without sending comes before the intent, so that an intent means a create may have happened.
    """
    check_requests(run, batch)
    now = run.ctx.now()
    key = intent_key(run.row.token, batch.number, run.ctx.random.getrandbits(32))
    provider = run.provider
    account = await run.account()
    try:
        fence = None if run.ids_tell else await provider.fence()
    except ProviderError as error:
        if error.fault is Fault.SYSTEMIC:
            raise
        _wait_for_list(run, batch, error)
        return False
    if batch.file_id is not None and batch.address not in (None, account.address):
        batch = replace(batch, file_id=None)  # it was uploaded somewhere else
        run.store.batches.set_file(run.id, batch.number, None)
    submission = submission_of(run, replace(batch, key=key, intent_at=now, fence=fence))
    where = {"address": account.address, "key_hint": account.key_hint, "fence": fence}
    run.sent.note(Sent(batch.number, batch.sends + 1, key, stamp(now), batch.requests, **where))
    run.store.batches.intend(run.id, batch.number, key, now, **where)
    try:
        created = await provider.submit(
            submission,
            lambda file_id: run.store.batches.set_file(run.id, batch.number, file_id),
        )
    except ProviderError as error:
        return await _refused(run, batch, error)
    record_created(run, batch.number, created, first_look=run.settings.interval)
    drop_own_lines(run, batch)
    size = f"{counted(batch.requests, 'request')}, {batch.size:,} bytes"
    run.emit(
        "batch.submitted",
        f"batch {batch.number} submitted: {created.batch_id}, {size}",
        batch=batch.number,
        data={"batch_id": created.batch_id, "requests": batch.requests, "bytes": batch.size, "round": batch.round},
    )
    for warning in created.warnings:
        run.emit("batch.warning", f"batch {batch.number}: {warning}", batch=batch.number, level=Level.WARNING)
    return True


def _wait_for_list(run: HeldRun, batch: BatchRow, error: ProviderError) -> None:
    """A batch is not sent for now: were its create lost, nobody could tell it from another's."""
    run.unlisted = (
        f"batch {batch.number} waits, because the provider's list cannot be read ({error.message}), by which a lost "
        "create is found; each pass tries again, and a run with --tag-ids needs no list"
    )
    run.emit("batch.unlisted", run.unlisted, batch=batch.number, level=Level.WARNING)


def record_created(
    run: HeldRun, number: int, created: Created, *, certain: bool = True, first_look: float = 0.0
) -> None:
    """Write down the provider's id of a batch that was being sent.

    Args:
        certain: false where the results must confirm that it is ours.
        first_look: seconds until it is looked at.
    """
    now = run.ctx.now()
    run.store.batches.created(
        run.id,
        number,
        batch_id=created.batch_id,
        status=created.status,
        expires_at=created.expires_at,
        certain=certain,
        at=now,
        next_check_at=now + timedelta(seconds=first_look),
    )


async def _refused(run: HeldRun, batch: BatchRow, error: ProviderError) -> bool:
    """React to a create that did not give an id; true when sending may go on at once."""
    if error.fault is Fault.AMBIGUOUS:
        run.emit(
            "batch.in_doubt",
            f"batch {batch.number}: the answer to its create was lost ({error.message}); "
            "the provider's lists decide before anything is sent again",
            batch=batch.number,
            level=Level.WARNING,
        )
        return False
    if error.fault is Fault.TOO_LARGE:
        if batch.requests > 1:
            await halve(run, batch, f"refused as too large: {error.message}")
        else:
            uploaded = run.batch(batch.number)
            refuse_single(run, batch, error)
            await discard_file(run, uploaded)
        return True
    keep_file = error.fault is not Fault.FILE_NOT_READY or batch.refusals < FILE_PATIENCE
    uploaded = run.batch(batch.number)
    pause = _pause(run, batch, error)
    run.store.batches.back_to_waiting(
        run.id,
        batch.number,
        not_before=run.ctx.now() + timedelta(seconds=pause),
        refusals=batch.refusals + 1,
        keep_file=keep_file,
        faults=[{"code": "storage_full", "message": error.message}] if error.fault is Fault.STORAGE_FULL else (),
    )
    if not keep_file:
        await discard_file(run, uploaded)
    if error.fault in (Fault.SYSTEMIC, Fault.PERMANENT, Fault.NOT_FOUND):
        raise SystemicError(
            f"the provider refuses batch {batch.number} ({run.row.provider}, model {run.row.model}, "
            f"{run.row.endpoint}): {error.message}",
            hint=error.hint or "correct it and give the same command again; every item stays open",
        )
    run.emit(
        "batch.refused",
        f"batch {batch.number} not accepted yet ({error.message}); next try in {math.ceil(pause)} s",
        batch=batch.number,
        level=Level.WARNING,
        data={"fault": str(error.fault), "requests": batch.requests, "bytes": batch.size},
    )
    if error.fault is Fault.QUEUE_FULL or error.status == TOO_MANY:
        await halve_for_room(run, batch)
    return False


def needs_of_room(run: HeldRun) -> str | None:
    """The sentence that tells a person what a batch waits for that does not come by itself (field reports 60, 61)."""
    for batch in run.store.batches.in_state(run.id, BatchState.WAITING):
        if any(fault["code"] == "storage_full" for fault in batch.faults):
            return (
                f"batch {batch.number} waits, because the provider's file storage is full: delete files there that "
                f"nothing needs any more (`batchctl doctor --repair {run.name}` deletes unused ones of ours); it is "
                "tried again by itself"
            )
    return None


def _pause(run: HeldRun, batch: BatchRow, error: ProviderError) -> float:
    """Seconds before this batch may be tried again: what the provider says, else a growing pause."""
    if error.fault is Fault.SYSTEMIC:
        return 0.0
    if error.retry_after is not None:
        return min(error.retry_after, LONGEST_PAUSE)
    if error.fault is Fault.FILE_NOT_READY:
        return _scaled(run, FILE_PAUSE * (batch.refusals + 1))
    return pause_for_room(run, batch.refusals + 1)


def pause_for_room(run: HeldRun, refusals: int) -> float:
    """Seconds before a batch refused so many times in a row is sent again."""
    longer = backoff(refusals, REFUSAL_PAUSE, MAX_REFUSAL_PAUSE, run.ctx.random.random())
    return _scaled(run, REFUSAL_PAUSE / 2 + longer)


def _scaled(run: HeldRun, seconds: float) -> float:
    """A pause meant for the usual interval, shorter where the run asks more often."""
    return seconds * min(run.settings.interval / USUAL_INTERVAL, 1.0)
