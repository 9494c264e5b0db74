"""The verbs of the batch lane, as the command line calls them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from batchctl.core.errors import (
    InputError,
    ProviderError,
    SomeFailedError,
    StillOpenError,
    StorageError,
    SystemicError,
    UnknownCreateError,
)
from batchctl.core.events import Level
from batchctl.core.model import MAY_ANSWER, BatchState, Outcome, RunState
from batchctl.core.words import counted
from batchctl.runs.accounts import doubts_elsewhere
from batchctl.runs.canceling import withdraw_everything
from batchctl.runs.context import Context
from batchctl.runs.driving import one_pass, stop_if_asked, until_settled
from batchctl.runs.finishing import close_open_items, finish, is_settled
from batchctl.runs.held import HeldRun, hold
from batchctl.runs.planning import PlanRequest
from batchctl.runs.polling import LOST_AFTER
from batchctl.runs.recalling import recall, refuse_older_state
from batchctl.runs.recovering import recover
from batchctl.runs.reopening import requestable, take_back
from batchctl.runs.settling import settle
from batchctl.runs.several import Several
from batchctl.runs.starting import start
from batchctl.state.store import Store


@dataclass(slots=True)
class Submitted:
    """What `submit` did: the run and the provider's ids of its batches so far."""

    name: str
    batch_ids: list[str] = field(default_factory=list)


async def submit(ctx: Context, request: PlanRequest) -> Submitted:
    """Plan a run and send what the limits let in; the same request again goes on with it.

    Raises:
        InputError, HeldError, SystemicError, UnknownCreateError.
    """
    with start(ctx, request) as run:
        try:
            await one_pass(run, look=False, resubmit=True)
        finally:
            await run.aclose()
        stop_if_asked(run)
        _raise_for_unknown(run)
        ids = [batch.batch_id for batch in run.store.batches.all(run.id) if batch.batch_id]
        return Submitted(run.name, ids)


async def run_to_end(ctx: Context, request: PlanRequest) -> None:
    """Submit, then poll and resubmit until every item has its outcome.

    Raises:
        SomeFailedError: finished, and some items failed; besides what `submit` raises.
    """
    with start(ctx, request) as run:
        try:
            await until_settled([run], resubmit=True, failed=_raise)
        finally:
            await run.aclose()
        raise_for_end(run)


def _raise(_run: HeldRun, error: Exception) -> None:
    raise error


async def poll(
    ctx: Context,
    names: Sequence[str],
    *,
    wait: bool,
    resubmit: bool,
    limit: float | None = None,
) -> None:
    """One pass over the named runs (or all open ones); with `wait`, passes until they are settled.

    Args:
        limit: seconds to wait at most; a clock that is set meanwhile changes nothing.

    Raises:
        HeldError: another process holds a named run, or all of them.
        BatchctlError: the worst that befell a run, after every other run had its turn.
    """
    until = None if limit is None else ctx.monotonic() + limit
    with Store.open(ctx.state_path) as store, Several(ctx, store, names) as several:
        try:
            await several.each(_recovered)
            if wait:
                await until_settled(several.runs, resubmit=resubmit, failed=several.failed, until=until)
                await several.each(_ended)
            else:
                await several.each(_look_again if resubmit else _look)
        finally:
            await several.aclose()


async def _recovered(run: HeldRun) -> None:
    recover(run)


async def _ended(run: HeldRun) -> None:
    raise_for_end(run)


async def _look(run: HeldRun) -> None:
    await _pass(run, look=True, resubmit=False)


async def _look_again(run: HeldRun) -> None:
    await _pass(run, look=True, resubmit=True)


async def _pass(run: HeldRun, *, look: bool, resubmit: bool) -> None:
    await one_pass(run, look=look, resubmit=resubmit, all_batches=True)
    stop_if_asked(run)
    _raise_for_unknown(run)


async def resubmit(ctx: Context, names: Sequence[str], *, failed: bool = False, abandon: int | None = None) -> None:
    """Send pending items again in new, smaller batches, within the cap.

    Args:
        failed: also, once more, items that failed for good.
        abandon: number of a batch that is given up first: its cancel never ends, or its results are gone.

    Raises:
        HeldError, BatchctlError: as `poll`.
    """
    with Store.open(ctx.state_path) as store, Several(ctx, store, names) as several:
        try:
            await several.each(_recovered)
            if abandon is not None:
                await several.each(partial(_give_up, abandon))
            if failed:
                await several.each(_take_failed_back)
            await several.each(_send_again)
        finally:
            await several.aclose()


async def _give_up(number: int, run: HeldRun) -> None:
    batch = run.store.batches.get(run.id, number)
    lost = batch is not None and batch.state is BatchState.IN_PROGRESS and batch.check_failures >= LOST_AFTER
    if batch is None or not (lost or batch.state in (BatchState.CANCELING, BatchState.ENDED)):
        found = "no such batch" if batch is None else f"it is {batch.state}"
        raise InputError(
            f"batch {number} of run {run.name} cannot be given up: {found}",
            hint="only one whose cancel does not end, that cannot be looked at, or whose results are gone",
        )
    held = run.store.items.count_members(run.id, number)
    run.store.batches.abandon(run.id, number, at=run.ctx.now())
    run.emit(
        "batch.abandoned",
        f"batch {number} ({batch.batch_id}) is given up; its {held:,} items go again and may be paid twice, "
        "an answer that still comes is kept",
        batch=number,
        level=Level.WARNING,
        data={"batch_id": batch.batch_id, "items": held},
    )


async def _take_failed_back(run: HeldRun) -> None:
    if run.row.state is RunState.CANCELED:
        raise InputError(f"run {run.name} is canceled and sends nothing more", hint="start a new run of these items")
    if seqs := requestable(run):
        take_back(run, seqs)
        run.emit("run.reopened", f"{len(seqs):,} failed items go once more", data={"items": len(seqs)})


async def _send_again(run: HeldRun) -> None:
    if run.row.state is RunState.STOPPED:
        run.store.runs.move(run.id, RunState.OPEN, needs=None, at=run.ctx.now())
    await _pass(run, look=False, resubmit=True)


async def cancel(ctx: Context, name: str) -> None:
    """Stop a run: nothing more is sent, batches are canceled, what they finished is still collected by `poll`.

    The provider is asked first: what saves money needs no result file.
    """
    with Store.open(ctx.state_path) as store, hold(ctx, store, name) as run:
        if is_settled(run.row):
            raise InputError(f"run {name} is {run.row.state} already", hint=f"see `batchctl show {name}`")
        if run.row.state is not RunState.CANCELED:
            run.store.runs.move(run.id, RunState.CANCELED, needs=None, at=ctx.now())
            run.refresh()
        try:
            recall(run)  # what only an older copy of the state file calls unsent is settled, and canceled, too
            await settle(run)
            await withdraw_everything(run)
            recover(run)
            await one_pass(run, look=True, resubmit=False, all_batches=True)
        except ProviderError as error:
            raise SystemicError(error.message, hint=error.hint) from error
        except StorageError as error:
            text = f"run {name} is canceled, but what its batches finished cannot be collected yet: {error.message}"
            way = f"; `batchctl doctor --repair {name}` shows and mends what it can"
            run.emit("run.not_collected", text + way, level=Level.WARNING)
        finally:
            await run.aclose()


async def accept(ctx: Context, name: str) -> None:
    """Close a run as complete with exceptions: items that wait for nothing get their last error as final line.

    Raises:
        InputError: a batch may still answer.
        StateError: one the state file does not know may.
    """
    with Store.open(ctx.state_path) as store, hold(ctx, store, name) as run:
        recover(run)
        recall(run)
        refuse_older_state(run)
        if is_settled(run.row):
            raise InputError(f"run {name} is {run.row.state} already", hint=f"see `batchctl show {name}`")
        _refuse_while_answers_may_come(run)
        for batch in run.store.batches.in_state(run.id, BatchState.WAITING):
            run.store.batches.withdraw(run.id, batch.number)
        closed = close_open_items(run, Outcome.CANCELED)
        run.emit(
            "run.accepted", f"run {name} accepted with {counted(closed, 'item')} unanswered", data={"closed": closed}
        )
        finish(run)


def _refuse_while_answers_may_come(run: HeldRun) -> None:
    live = run.store.batches.in_state(run.id, *MAY_ANSWER)
    if live:
        numbers = ", ".join(f"{batch.number} ({batch.state})" for batch in live)
        raise InputError(
            f"run {run.name} cannot be closed yet: batch {numbers} may still answer",
            hint=f"`batchctl poll {run.name}` collects, `batchctl cancel {run.name}` stops them first",
        )


def _raise_for_unknown(run: HeldRun) -> None:
    if run.store.batches.in_state(run.id, BatchState.UNKNOWN) or doubts_elsewhere(run):
        raise UnknownCreateError(run.refresh().needs or "a create is unknown")


def raise_for_end(run: HeldRun) -> None:
    """Say by exception how a wait ended.

    Raises:
        SomeFailedError, UnknownCreateError, StillOpenError.
    """
    row = run.refresh()
    if not row.open:
        if row.failed:
            raise SomeFailedError(
                f"run {run.name} is {row.state}, but {row.failed:,} of its {counted(row.planned, 'item')} failed",
                hint=f"`batchctl errors {run.name}` shows why",
            )
        return
    _raise_for_unknown(run)
    ids = [batch.batch_id for batch in run.store.batches.in_state(run.id, BatchState.IN_PROGRESS) if batch.batch_id]
    still = f"; batches {', '.join(ids[:10])}" if ids else ""
    raise StillOpenError(
        f"run {run.name}: {row.open:,} of {row.planned:,} items are still open{still}",
        hint=row.needs or f"`batchctl poll --wait {run.name}` goes on waiting",
    )
