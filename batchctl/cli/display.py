"""The live display on a terminal: a run line, a row per open batch, totals, all read from the store."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from batchctl.cli.sinks import told
from batchctl.cli.text import safe
from batchctl.core.durations import format_duration
from batchctl.core.errors import BatchctlError
from batchctl.core.events import Emit, Event, Level
from batchctl.core.model import BatchState, RunState
from batchctl.core.words import counted
from batchctl.runs.context import utc_now
from batchctl.state.rows import BatchRow, RunRow
from batchctl.state.store import Store

SHOWN_BATCHES = 15
OVER = (BatchState.COLLECTED, BatchState.REJECTED, BatchState.WITHDRAWN)
PROGRESS = "fanout.progress"
STYLES = {Level.WARNING: "yellow", Level.ERROR: "red"}


class Display:
    """Draws the runs that events speak of.

    Args:
        options: those before the command; the state file is read anew for every drawing.
        several: the command works on several runs.
    """

    def __init__(self, options: dict[str, Any], console: Console, *, several: bool) -> None:
        self._state: Path = options["state"]
        self._told = partial(told, several=several, state=options["state_given"])
        self._console = console
        self._names: list[str] = []
        self._progress = ""  # of the sync lane: what is in flight is nowhere in the store

    def emit(self, event: Event) -> None:
        """Print an event above the display, and draw its run from now on."""
        if event.run is not None and event.run not in self._names:
            self._names.append(event.run)
        if event.kind == PROGRESS:
            self._progress = event.text
        elif event.level >= Level.INFO:
            self._console.print(Text(self._told(event), style=STYLES.get(event.level, "")), highlight=False)

    def draw(self) -> RenderableType:
        """Everything as it is in the store now."""
        try:
            store = Store.open(self._state, readonly=True)
        except BatchctlError:  # not made yet, or only just
            return Text("reading the input…")
        with store:
            runs = [row for name in self._names if (row := store.runs.get(name)) is not None]
            drawn = [draw_run(row, store.batches.all(row.id), utc_now()) for row in runs]
        return Group(*drawn, Text(self._progress)) if self._progress else Group(*drawn)


def draw_run(row: RunRow, batches: list[BatchRow], now: datetime) -> RenderableType:
    """One run: its line, its open batches."""
    if row.state is RunState.PLANNING:
        return Text(f"{row.name}: reading the input…")
    line = Text.assemble(
        (row.name, "bold"),
        f"  {row.state}  {format_duration((now - row.created_at).total_seconds())}",
        f"  {_expected(batches, now, simulated=bool(row.settings.get('simulate')))}",
        f"  {row.succeeded:,} succeeded, {row.failed:,} failed, {row.open:,} open of {row.planned:,}",
        f"  ${row.cost_usd:,.2f}",
    )
    table = Table(box=None, pad_edge=False)
    for name in ("batch", "status", "round", "requests", "counts", "age"):
        table.add_column(name, justify="right" if name in ("batch", "round", "requests", "age") else "left")
    live = [batch for batch in batches if batch.state not in OVER]
    for batch in live[:SHOWN_BATCHES]:
        since = batch.submitted_at and (batch.ended_at or now) - batch.submitted_at
        counts = ", ".join(f"{count:,} {name}" for name, count in batch.provider_counts.items() if count)
        table.add_row(
            str(batch.number),
            _state_of(batch),
            str(batch.round),
            f"{batch.requests:,}",
            safe(counts),
            format_duration(since.total_seconds()) if since else "-",
        )
    collected = sum(batch.state is BatchState.COLLECTED for batch in batches)
    parts: list[RenderableType] = [line, *([table] if live else [])]
    if len(live) > SHOWN_BATCHES:
        parts.append(Text(f"… and {len(live) - SHOWN_BATCHES:,} more open batches"))
    return Group(*parts, Text(f"{counted(collected, 'batch')} collected", style="dim"))


def _state_of(batch: BatchRow) -> str:
    """Our word for where a batch stands, with the provider's where it is another."""
    theirs = batch.provider_status
    return str(batch.state) if theirs in (None, str(batch.state)) else f"{batch.state} ({safe(theirs)})"


def _expected(batches: list[BatchRow], now: datetime, *, simulated: bool) -> str:
    """When the open batches should end, judged by those that have; the provider's own limit before that.

    A simulator's clock is another one: its limit says nothing about the time here.
    """
    took = [
        (batch.ended_at - batch.submitted_at).total_seconds()
        for batch in batches
        if batch.ended_at is not None and batch.submitted_at is not None
    ]
    ages = [
        (now - batch.submitted_at).total_seconds()
        for batch in batches
        if batch.state is BatchState.IN_PROGRESS and batch.submitted_at is not None
    ]
    if not ages:
        return ""
    if took:
        left = max(0.0, statistics.median(took) - min(ages))
        return f"about {format_duration(left)} left" if left >= 1 else "due to end"
    if simulated:
        return ""
    limits = [batch.expires_at for batch in batches if batch.state is BatchState.IN_PROGRESS and batch.expires_at]
    return f"at most {format_duration((max(limits) - now).total_seconds())} left" if limits else ""


@contextmanager
def live_display(options: dict[str, Any], *, several: bool) -> Iterator[Emit]:
    """A live display on stderr; what it shows last stays on the screen."""
    console = Console(stderr=True)
    display = Display(options, console, several=several)
    with Live(get_renderable=display.draw, console=console, refresh_per_second=2, redirect_stdout=False):
        yield display.emit
