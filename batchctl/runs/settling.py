"""Settles creates whose answer was lost: the provider's own lists decide before anything is sent again."""

from __future__ import annotations

from datetime import timedelta

from batchctl.core.errors import Fault, ProviderError, SystemicError
from batchctl.core.events import Level
from batchctl.core.model import IN_DOUBT, BatchState
from batchctl.core.retry import LONGEST_PAUSE, is_due
from batchctl.providers.base import Absent, Found, Unknown
from batchctl.providers.errors import UNREADABLE
from batchctl.runs.accounts import look_elsewhere
from batchctl.runs.held import HeldRun
from batchctl.runs.polling import LOST_AFTER
from batchctl.runs.submitting import record_created, submission_of
from batchctl.state.rows import BatchRow

MOST_LOST = 5  # creates of one batch that never arrived before the run stops (field report 39)
LOOKS = 3  # lists without a trace of the batch before it counts as never created


async def settle(run: HeldRun) -> bool:
    """Settle every intent without an id; true when none is left in doubt, so that sending may go on.

    An intent counts as never accepted only when three lists, the last one `settle_after` seconds or more after the
    first, show no trace of it: a list may lag behind a create, and a create may have come long after its intent
    (its upload takes minutes), so the first look is what the wait is counted from.

    Raises:
        ProviderError: a systemic fault; the intents stay as they are.
    """
    clear = True
    for batch in run.store.batches.in_state(run.id, *IN_DOUBT):
        await look_elsewhere(run, batch)
        if not is_due(batch.next_check_at, run.ctx.now(), max(run.settings.interval, run.settings.settle_after)):
            clear = clear and (batch.state is BatchState.UNKNOWN or batch.number in run.elsewhere)
            continue
        if batch.next_check_at is not None and batch.next_check_at > run.ctx.now():
            run.store.batches.look_later(run.id, batch.number, run.ctx.now(), anew=True)  # that clock was wrong
        clear = await _settle_one(run, batch) and clear
    return clear


async def _settle_one(run: HeldRun, batch: BatchRow) -> bool:
    try:
        found = await run.provider.find(submission_of(run, batch), run.store.batches.known_ids(run.id))
    except ProviderError as error:
        if error.fault is Fault.SYSTEMIC:
            raise
        return _unread(run, batch, error)
    elsewhere = batch.number in run.elsewhere
    if isinstance(found, Found) and (found.certain or not elsewhere):
        return _adopt(run, batch, found)
    if elsewhere:
        return _elsewhere(run, batch)
    if isinstance(found, Absent):
        return _absent(run, batch, found.file_id)
    assert isinstance(found, Unknown)
    return _unknown(run, batch, found.reason, found.candidates)


def _unread(run: HeldRun, batch: BatchRow, error: ProviderError) -> bool:
    """The lists could not be read: later, or never where the server has none."""
    if error.fault in (Fault.PERMANENT, Fault.NOT_FOUND):
        if batch.number in run.elsewhere:
            return _elsewhere(run, batch)
        return _unknown(run, batch, f"this server has no list of batches: {error.message}", ())
    failures = batch.check_failures + 1
    if error.type == UNREADABLE and failures >= LOST_AFTER:
        return _unknown(run, batch, f"the provider's list of batches cannot be read: {error.message}", (), failures)
    pause = min(error.retry_after or 0.0, LONGEST_PAUSE) or run.settings.interval
    later = run.ctx.now() + timedelta(seconds=pause)
    run.store.batches.look_later(run.id, batch.number, later, failures=failures)
    run.emit(
        "batch.unsettled",
        f"batch {batch.number}: its create is in doubt and the provider's list could not be read ({error.message})",
        batch=batch.number,
        level=Level.WARNING,
    )
    return batch.state is BatchState.UNKNOWN


def _elsewhere(run: HeldRun, batch: BatchRow) -> bool:
    """Leave a create in doubt as it is: where it went is not where we can look, so its absence proves nothing."""
    run.store.batches.look_later(
        run.id, batch.number, run.ctx.now() + timedelta(seconds=run.settings.interval), anew=True
    )
    change = run.elsewhere[batch.number]
    if change not in (run.row.needs or ""):
        run.emit(
            "batch.elsewhere",
            f"batch {batch.number}: whether its create was accepted cannot be looked up: {change}",
            batch=batch.number,
            level=Level.ERROR,
        )
    return True


def _adopt(run: HeldRun, batch: BatchRow, found: Found) -> bool:
    created = found.created
    run.elsewhere.pop(batch.number, None)
    owner = run.store.batches.owner(created.batch_id)
    if owner is not None:
        return _unknown(run, batch, f"{created.batch_id} is taken by run {owner}", (created.batch_id,))
    rivals = [] if run.ids_tell else run.store.batches.rivals(run.id, batch.number)
    if rivals:
        return _unknown(
            run, batch, f"{created.batch_id} could be of run {', '.join(rivals)} as well", (created.batch_id,)
        )
    record_created(run, batch.number, created, certain=found.certain)
    run.emit(
        "batch.found",
        f"batch {batch.number}: its lost create was accepted, found {found.evidence}: {created.batch_id}",
        batch=batch.number,
        data={"batch_id": created.batch_id, "certain": found.certain},
    )
    return True


def _absent(run: HeldRun, batch: BatchRow, file_id: str | None) -> bool:
    """One more list without a trace of the batch; enough of them settle an unknown create too."""
    now = run.ctx.now()
    if batch.intent_at is not None and now < batch.intent_at:
        return _unknown(run, batch, "the clock here was set back since it was sent, so nothing counts as absent", ())
    pause = timedelta(seconds=run.settings.settle_after / (LOOKS - 1))
    if run.store.batches.looked(run.id, batch.number, next_check_at=now + pause) < LOOKS:
        return batch.state is BatchState.UNKNOWN
    if file_id is not None:
        run.store.batches.set_file(run.id, batch.number, file_id)
    lost = batch.lost + 1
    not_before = now + timedelta(seconds=run.settings.settle_after * (lost - 1))
    run.store.batches.back_to_waiting(
        run.id,
        batch.number,
        not_before=not_before,
        refusals=batch.refusals,
        lost=lost,
        keep_file=file_id is not None,
    )
    run.emit(
        "batch.absent",
        f"batch {batch.number}: its create never arrived; it waits to be sent",
        batch=batch.number,
        data={"file_id": file_id, "lost": lost},
    )
    if lost >= MOST_LOST:
        raise SystemicError(
            f"{lost} creates of batch {batch.number} in a row came to nothing ({run.row.provider}, model "
            f"{run.row.model}, {run.row.endpoint})",
            hint="is the model's name right and the service up? A weak line may need a new run with a lower "
            "--max-bytes. The same command goes on; every item stays open",
        )
    return True


def _unknown(run: HeldRun, batch: BatchRow, reason: str, candidates: tuple[str, ...], failures: int = 0) -> bool:
    if batch.state is not BatchState.UNKNOWN:
        run.store.batches.unknown(run.id, batch.number, reason)
        run.emit(
            "batch.unknown",
            f"batch {batch.number}: whether its create was accepted cannot be told ({reason})",
            batch=batch.number,
            level=Level.ERROR,
            data={"candidates": list(candidates)},
        )
    later = run.ctx.now() + timedelta(seconds=run.settings.interval)
    run.store.batches.look_later(run.id, batch.number, later, anew=True, failures=failures)
    return True


def needs_of_unknown(run: HeldRun) -> str | None:
    """The sentence that tells a person how to settle what settling cannot."""
    unknown = run.store.batches.in_state(run.id, BatchState.UNKNOWN)
    if not unknown:
        return _needs_of_unread(run)
    numbers = ", ".join(str(batch.number) for batch in unknown)
    return (
        f"whether batch {numbers} was created is unknown; each poll asks the provider's lists again. To settle it by "
        f"hand, look at the provider's console, then `batchctl adopt {run.name} BATCH_ID` if it is there, or "
        f"`batchctl adopt {run.name} --absent {unknown[0].number}` if it surely is not"
    )


def _needs_of_unread(run: HeldRun) -> str | None:
    """The sentence about a create in doubt while the provider's lists cannot be read."""
    for batch in run.store.batches.in_state(run.id, BatchState.SUBMITTING):
        if batch.check_failures >= LOST_AFTER:
            return (
                f"whether batch {batch.number} was created is in doubt, and {batch.check_failures:,} looks in a row at "
                f"the provider's list failed; `batchctl events {run.name}` says why, and each poll asks again"
            )
    return None
