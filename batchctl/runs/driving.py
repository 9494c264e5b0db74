"""One pass over a run, and passes until it is settled: the only loop of the batch lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batchctl.core.errors import BatchctlError, Fault, ProviderError, SystemicError
from batchctl.core.events import Level
from batchctl.core.model import MAY_ANSWER, RUNNING, BatchState, RunState
from batchctl.core.retry import is_due
from batchctl.core.words import counted
from batchctl.runs.accounts import needs_of_elsewhere
from batchctl.runs.canceling import withdraw_everything
from batchctl.runs.context import InterruptedRunError
from batchctl.runs.finishing import finish_if_settled, is_settled
from batchctl.runs.held import HeldRun
from batchctl.runs.input_files import discard_leftovers
from batchctl.runs.packing_pending import pack_pending
from batchctl.runs.polling import look_at_batches, needs_of_withheld
from batchctl.runs.recalling import recall, refuse_older_state
from batchctl.runs.settling import needs_of_unknown, settle
from batchctl.runs.submitting import admit, needs_of_room

MIN_PAUSE = 0.02  # seconds; a schedule that is due at once never spins


async def one_pass(run: HeldRun, *, look: bool, resubmit: bool, all_batches: bool = False) -> None:
    """Settle intents, look and collect, then send what waits; every step finds its work in the store.

    Args:
        look: ask the provider about open batches.
        resubmit: also send pending items again.
        all_batches: look at every open batch, due or not.

    Raises:
        SystemicError: the run is stopped, with its items open.
        StateError: the state file is older than what was sent.
    """
    run.unlisted = None
    try:
        recall(run)
        clear = await settle(run)
        if run.refresh().state is RunState.CANCELED:
            await withdraw_everything(run)
        if look:
            await look_at_batches(run, all_of_them=all_batches)
        if run.systemic is not None:
            raise SystemicError(
                f"run {run.name} is stopped: {run.systemic.message}",
                hint="put the account in order and give the same command again; the items it hit stay open",
            )
        refuse_older_state(run)
        if run.refresh().state is RunState.OPEN:
            if resubmit:
                pack_pending(run)
            if clear:
                await admit(run)
    except (SystemicError, ProviderError) as error:
        if isinstance(error, ProviderError) and error.fault is not Fault.SYSTEMIC:
            raise
        stop(run, error)
        raise SystemicError(error.message, hint=error.hint) from error
    await discard_leftovers(run)
    finish_if_settled(run)
    _say_what_it_needs(run)


def stop(run: HeldRun, error: BatchctlError) -> None:
    """Stop a run on a systemic error: nothing more is sent, items stay open."""
    if run.refresh().state is RunState.OPEN:
        run.store.runs.move(run.id, RunState.STOPPED, needs=error.message, at=run.ctx.now())
    run.emit("run.stopped", f"run {run.name} is stopped: {error.message}", level=Level.ERROR)


def stop_if_asked(*runs: HeldRun) -> None:
    """Leave where a signal asked for it; call it only where leaving loses nothing (field reports 86, 87).

    Raises:
        InterruptedRunError: a signal came; it says what goes on at the provider and how to go on here.
    """
    number = runs[0].ctx.stop.signal_number
    if number is None:
        return
    live = [batch for run in runs for batch in run.store.batches.in_state(run.id, *RUNNING)]
    ids = ", ".join(str(batch.batch_id) for batch in live[:10])
    going = f"; {counted(len(live), 'batch')} still at the provider: {ids}" if live else ""
    names = [run.name for run in runs]
    raise InterruptedRunError(
        number,
        f"interrupted, the state of {'run' if len(names) == 1 else 'runs'} {', '.join(names)} is saved{going}",
        hint=f"`batchctl poll --wait --resubmit {' '.join(names)}` goes on, "
        f"`batchctl cancel {names[0] if len(names) == 1 else 'RUN'}` stops the batches",
    )


def _say_what_it_needs(run: HeldRun) -> None:
    row = run.refresh()
    if row.state is RunState.STOPPED:
        return  # why it was stopped is what a person must know
    needs = None if is_settled(row) else needs_now(run)
    if needs != row.needs:
        run.store.runs.set_needs(run.id, needs, at=run.ctx.now())


def needs_now(run: HeldRun) -> str | None:
    """The most pressing thing a person must do."""
    return (
        needs_of_elsewhere(run)
        or needs_of_unknown(run)
        or needs_of_withheld(run)
        or run.unlisted
        or needs_of_room(run)
        or needs_of_rest(run)
    )


def needs_of_rest(run: HeldRun) -> str | None:
    """What a person must do for items that no batch has, or for an input that was left."""
    if not run.row.inputs:
        return f"its input was not read to its end: `fanout` again goes on, `batchctl accept {run.name}` ends it"
    pending = run.store.items.count_pending(run.id)
    if not pending:
        return None
    wait = "waits" if pending == 1 else "wait"
    return f"{counted(pending, 'item')} {wait} to be sent again: `batchctl resubmit {run.name}`"


async def until_settled(
    runs: Sequence[HeldRun],
    *,
    resubmit: bool,
    failed: Callable[[HeldRun, Exception], None],
    until: float | None = None,
) -> None:
    """Pass after pass over all runs, each left out when it is settled or only a person can move it on.

    Args:
        failed: takes the error that ended one run's wait; the others go on.
        until: give up waiting then, by the monotonic clock; the runs go on with the next command.
    """
    waiting = list(runs)
    while waiting:
        pauses: dict[str, float] = {}
        for run in waiting:
            try:
                await one_pass(run, look=True, resubmit=resubmit)
                stop_if_asked(*waiting)
                pause = None if is_settled(run.row) else _pause(run)
            except InterruptedRunError:
                raise
            except Exception as error:  # noqa: BLE001  # whatever befalls one run, the others go on
                failed(run, error)
                pause = None
            if pause is not None:
                pauses[run.name] = pause
        waiting = [run for run in waiting if run.name in pauses]
        if waiting and not await _sleep(waiting, min(pauses.values()), until):
            return


async def _sleep(runs: Sequence[HeldRun], pause: float, until: float | None) -> bool:
    """Wait until something is due; false when the wait has run out."""
    ctx = runs[0].ctx
    if until is not None:
        left = until - ctx.monotonic()
        if left <= 0:
            return False
        pause = min(pause, left)
    await ctx.stop.wait(pause)
    stop_if_asked(*runs)
    return True


def _pause(run: HeldRun) -> float | None:
    """Seconds until something is due; None when only a person (or `resubmit`) can move the run on."""
    now = run.ctx.now()
    moving = MAY_ANSWER - {BatchState.UNKNOWN}
    interval = run.settings.interval
    looks = [
        batch.next_check_at
        for batch in run.store.batches.in_state(run.id, *moving)
        if batch.number not in run.withheld and batch.number not in run.elsewhere
    ]
    due = [now if moment is None or is_due(moment, now, interval) else moment for moment in looks]
    waiting = run.store.batches.in_state(run.id, BatchState.WAITING)
    due += [batch.not_before for batch in waiting if batch.not_before and not is_due(batch.not_before, now, 0.0)]
    if not due:
        return run.settings.interval if waiting and run.row.state is RunState.OPEN else None
    return max(MIN_PAUSE, (min(due) - now).total_seconds())
