"""Where a run stands after a command that worked on it, in words for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from batchctl.cli.text import commands_for, error_table, safe
from batchctl.core.durations import format_duration
from batchctl.core.errors import BatchctlError, HeldError, InputError
from batchctl.core.events import Event, Level
from batchctl.core.model import MAY_ANSWER, BatchState, RunState
from batchctl.core.words import counted
from batchctl.runs import reading
from batchctl.runs.context import Context
from batchctl.state.rows import BatchRow, RunRow
from batchctl.state.store import Store

_SHOWN = {
    BatchState.IN_PROGRESS: "in progress",
    BatchState.CANCELING: "being canceled",
    BatchState.ENDED: "ended and not collected",
    BatchState.WAITING: "waiting to be sent",
    BatchState.SUBMITTING: "whose create is being settled",
    BatchState.UNKNOWN: "whose create is unknown",
}
_LOOKED_AT = MAY_ANSWER - {BatchState.UNKNOWN}


def runs_of(state: Path, names: Sequence[str]) -> list[RunRow]:
    """The named runs, or every open one.

    Raises:
        InputError: there is no state file, or no run of that name.
    """
    with Store.open(state, readonly=True) as store:
        return [reading.run_named(store, name) for name in names] if names else store.runs.open()


def simulated_runs(state: Path) -> list[str]:
    """Every run that lives on the simulator; none where the state file cannot tell."""
    try:
        with Store.open(state, readonly=True) as store:
            return [row.name for row in store.runs.all() if row.settings.get("simulate")]
    except BatchctlError:
        return []


def run_before(state: Path, name: str) -> list[RunRow]:
    """The run of this name, where there is one; how a command that starts runs finds what it goes on with."""
    try:
        return runs_of(state, (name,))
    except BatchctlError:
        return []


def say_standing(ctx: Context, before: Sequence[RunRow]) -> None:
    """One line a run: what a pass saw, or what keeps it from going on.

    Args:
        before: the runs as they were before the pass; the end of one that ended in it was said already.
    """
    if not before:
        ctx.emit(Event("run.standing", f"no open runs in {ctx.state_path}"))
    with Store.open(ctx.state_path, readonly=True) as store:
        for old in before:
            row = reading.run_named(store, old.name)
            if row.finished_at is not None and old.finished_at is None:
                continue
            level = Level.WARNING if row.state is RunState.STOPPED else Level.INFO
            ctx.emit(Event("run.standing", standing(row, store.batches.all(row.id), ctx.now()), row.name, level=level))


def standing(row: RunRow, batches: Sequence[BatchRow], now: datetime) -> str:
    """One run in one line."""
    counts = f"{row.succeeded:,} succeeded, {row.failed:,} failed, {row.open:,} open of {row.planned:,}"
    if row.finished_at is not None:
        return f"run {row.name} is {row.state}: {row.succeeded:,} succeeded, {row.failed:,} failed of {row.planned:,}"
    if row.state is RunState.STOPPED:
        needs = (row.needs or "").rstrip(".")
        way = "resubmit" if batches else "fanout --run"
        return f"run {row.name} is stopped: {needs}; `batchctl {way} {row.name}` goes on ({counts})"
    states = [(sum(batch.state is state for batch in batches), words) for state, words in _SHOWN.items()]
    shown = ", ".join(f"{counted(count, 'batch')} {words}" for count, words in states if count) or "no batch is open"
    canceled = " is canceled" if row.state is RunState.CANCELED else ""
    needs = f"; needs: {row.needs}" if row.needs else ""
    return f"run {row.name}{canceled}: {shown}{_next_look(batches, now)}; {counts}{needs}"


def _next_look(batches: Sequence[BatchRow], now: datetime) -> str:
    looks = [batch.next_check_at for batch in batches if batch.state in _LOOKED_AT and batch.next_check_at]
    if not looks:
        return ""
    left = (min(looks) - now).total_seconds()
    return f", next look in {format_duration(left)}" if left >= 1 else ", next look is due"


@contextmanager
def summed_up(options: dict[str, Any], name: str) -> Iterator[None]:
    """Sum a run up when the work on it ends, however it ends; a refused command did nothing that could be summed up."""
    finished = any(row.finished_at is not None for row in run_before(options["state"], name))
    try:
        yield
    except (InputError, HeldError):
        raise
    except BatchctlError as error:
        with suppress(BatchctlError):  # how the run ended is said, even where no summary can be made
            _say_summary(options, name, finished=finished, said=error.message)
        raise
    _say_summary(options, name, finished=finished)


def _say_summary(options: dict[str, Any], name: str, *, finished: bool, said: str | None = None) -> None:
    """How a run ended, on stderr.

    Args:
        finished: it was before the command.
        said: the error that the command ends with, which need not be said twice.
    """
    state: Path = options["state"]
    if not state.exists():
        return
    with Store.open(state, readonly=True) as store:
        row = store.runs.get(name)
        if row is None:
            return
        groups = [asdict(group) for group in reading.error_groups(store, row)]
        batches = store.batches.all(row.id)
    if options["quiet"] and not (row.failed or row.open):
        return
    if finished:
        click.echo(f"run {name} was finished already; nothing was sent", err=True)
    rounds = max((batch.round for batch in batches), default=0)
    count = len([batch for batch in batches if batch.batch_id])
    click.echo(
        f"{row.name}: {row.state}; {row.planned:,} planned = {row.succeeded:,} succeeded + {row.failed:,} failed + "
        f"{row.open:,} open; {counted(count, 'batch')}, {counted(rounds, 'round')} of resubmission; "
        f"{row.input_tokens:,} + {row.output_tokens:,} tokens, ${row.cost_usd:,.4f}"
        + (f" ({counted(row.unpriced, 'answer')} without a known price)" if row.unpriced else ""),
        err=True,
    )
    if groups:
        click.echo(error_table(groups), err=True)
    if row.needs and row.needs != said:
        click.echo(f"needs: {safe(commands_for(row.needs, options['state_given']))}", err=True)
    click.echo(f"files: {row.out}", err=True)
