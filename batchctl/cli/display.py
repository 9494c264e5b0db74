"""The live display on a terminal: a run line, a row per open batch, totals, all read from the store."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from batchctl.cli.text import age, safe
from batchctl.core.errors import BatchctlError
from batchctl.core.events import Emit, Event, Level
from batchctl.core.model import BatchState, RunState
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
        state: the state file; read anew for every drawing.
    """

    def __init__(self, state: Path, console: Console) -> None:
        self._state = state
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
            self._console.print(Text(safe(event.text), style=STYLES.get(event.level, "")), highlight=False)

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
        f"  {row.state}  {age((now - row.created_at).total_seconds())}",
        f"  {_expected(batches, now)}",
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
            f"{batch.state} ({batch.provider_status})" if batch.provider_status else str(batch.state),
            str(batch.round),
            f"{batch.requests:,}",
            safe(counts),
            age(since.total_seconds()) if since else "-",
        )
    more = Text(f"… and {len(live) - SHOWN_BATCHES:,} more open batches") if len(live) > SHOWN_BATCHES else Text("")
    collected = sum(batch.state is BatchState.COLLECTED for batch in batches)
    return Group(line, table, more, Text(f"{collected:,} batches collected", style="dim"))


def _expected(batches: list[BatchRow], now: datetime) -> str:
    """When the open batches should end, judged by those that have; the provider's own limit before that."""
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
        return f"about {age(left)} left"
    limits = [batch.expires_at for batch in batches if batch.state is BatchState.IN_PROGRESS and batch.expires_at]
    return f"at most {age((max(limits) - now).total_seconds())} left" if limits else ""


@contextmanager
def live_display(state: Path) -> Iterator[Emit]:
    """A live display on stderr; what it shows last stays on the screen."""
    console = Console(stderr=True)
    display = Display(state, console)
    with Live(get_renderable=display.draw, console=console, refresh_per_second=2, redirect_stdout=False):
        yield display.emit
