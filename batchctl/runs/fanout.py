"""The verbs of the sync lane: a new run, or what an existing one still has open, through one sliding window."""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from batchctl.core.errors import InputError
from batchctl.core.model import BatchState, RunState
from batchctl.files.names import workdir
from batchctl.files.outputs import OutputFolder
from batchctl.files.spool import SpoolWriter
from batchctl.runs.budget import refuse_unpriced
from batchctl.runs.context import Context
from batchctl.runs.fanout_feed import Feed
from batchctl.runs.fanout_running import drive
from batchctl.runs.finishing import is_settled
from batchctl.runs.held import HeldRun, hold
from batchctl.runs.planning import PlanRequest, create_row, make_run
from batchctl.runs.recalling import recall, refuse_older_state
from batchctl.runs.recovering import recover
from batchctl.runs.starting import start
from batchctl.runs.verbs import raise_for_end
from batchctl.state.store import Store


async def fanout(ctx: Context, request: PlanRequest) -> None:
    """Plan a run and send its items one by one; the same request again goes on with it.

    Files are planned whole before anything is sent. What comes from a pipe is planned as it comes.

    Raises:
        SomeFailedError: finished, and some items failed.
        StillOpenError: items are in batches that may still answer.
        SystemicError: stopped, with its items open.
        InputError, HeldError: as for `run`.
    """
    feed = Feed(request.sources()) if _streams(request) else None
    plan = partial(make_run, packed=False) if feed is None else partial(_open_run, feed)
    with start(ctx, request, plan, streams=feed is not None) as run:
        if not is_settled(run.row):
            _withdraw_waiting(run)
            await _drive(run, feed if not run.row.inputs else None)
        raise_for_end(run)


async def fanout_run(ctx: Context, name: str, changes: Mapping[str, Any]) -> None:
    """Send what a run still has open and no batch may still answer.

    Args:
        changes: settings that steer the work, to be used from now on.

    Raises:
        InputError: there is no such run, it was canceled, or its cap cannot be kept; besides what `fanout` raises.
    """
    with Store.open(ctx.state_path) as store, hold(ctx, store, name) as run:
        refuse_unpriced(replace(run.settings, **changes), ctx.now())
        recover(run)
        if run.row.state is RunState.CANCELED:
            raise InputError(f"run {name} was canceled", hint="start a new run for its items")
        if not is_settled(run.row):
            _take_over(run, changes)
            await _drive(run, None)
        raise_for_end(run)


async def _drive(run: HeldRun, feed: Feed | None) -> None:
    provider = run.sync_provider()
    try:
        await drive(run, provider, feed)
    finally:
        await provider.aclose()


def _take_over(run: HeldRun, changes: Mapping[str, Any]) -> None:
    """Make a run of any lane ready to be sent here."""
    if changes:
        run.settings = replace(run.settings, **changes)
        run.store.runs.set_settings(run.id, run.settings.as_dict(), at=run.ctx.now())
    if run.row.state is RunState.STOPPED:
        run.store.runs.move(run.id, RunState.OPEN, needs=None, at=run.ctx.now())
    _withdraw_waiting(run)
    run.refresh()


def _withdraw_waiting(run: HeldRun) -> None:
    """Batches that were never sent give their items to this lane; all others keep theirs.

    Raises:
        StateError: the state file is older than what was sent.
    """
    recall(run)
    refuse_older_state(run)
    for batch in run.store.batches.in_state(run.id, BatchState.WAITING):
        run.store.batches.withdraw(run.id, batch.number)
        run.emit(
            "batch.withdrawn",
            f"batch {batch.number} was never sent: its {batch.requests:,} items go one by one",
            batch=batch.number,
            data={"requests": batch.requests},
        )


def _streams(request: PlanRequest) -> bool:
    """Whether an input may not end: standard input, a FIFO, anything but a regular file."""
    return any(item == "-" or not _is_regular(item) for item in request.items)


def _is_regular(item: str) -> bool:
    try:
        return stat.S_ISREG(Path(item).stat().st_mode)
    except OSError:
        return True  # opening it says what is wrong


def _open_run(feed: Feed, ctx: Context, request: PlanRequest, open_store: Callable[[], Store]) -> None:
    """Make a run without items, once there is a first record for it."""
    work = workdir(ctx.state_path, request.name)
    OutputFolder(request.out, work).refuse_foreign()
    with ctx.stop.at_once("interrupted while waiting for the first item: nothing was sent"):
        feed.first()
    SpoolWriter(work / "spool.jsonl").close()
    store = open_store()
    run_id = create_row(ctx, request, store, f"{ctx.random.getrandbits(32):08x}")
    store.runs.finish_plan(run_id, planned=0, inputs=[], at=ctx.now())
