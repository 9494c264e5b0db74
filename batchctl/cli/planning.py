"""Shows a plan."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from batchctl.cli.text import safe, table
from batchctl.core.errors import InputError
from batchctl.core.prices import MONEY_PLACES
from batchctl.core.words import counted
from batchctl.runs.building import NO_FIELD, uses_no_field
from batchctl.runs.costs import CostRange, cost_range
from batchctl.runs.cutting import Cut
from batchctl.runs.planning import PlanRequest

UNPRICED = "cost unknown: no price is known for this model; is its name right?"


def show_plan(request: PlanRequest, cut: Cut, *, as_json: bool) -> None:
    """Print what submit would do.

    Raises:
        InputError: there are bad records that submit would refuse.
    """
    cost = cost_range(request.settings, cut)
    if as_json:
        summary = {
            "items": cut.items,
            "bad": cut.bad,
            "too_large": cut.oversize,
            "batches": [
                {"batch": batch.number, "requests": batch.requests, "bytes": batch.size, "tokens": batch.tokens}
                for batch in cut.batches
            ],
            "bytes": cut.size,
            "input_tokens": cut.tokens,
            "cost_usd": None if cost is None else _rounded(cost),
            "problems": [str(problem) for problem in cut.problems],
        }
        click.echo(msgspec.json.encode(summary).decode())
    else:
        rows = [(batch.number, batch.requests, batch.size, batch.tokens, batch.model) for batch in cut.batches]
        if rows:
            click.echo(table(("batch", "requests", "bytes", "tokens", "model"), rows))
        click.echo(f"{counted(cut.items, 'item')}, {cut.size:,} bytes, about {cut.tokens:,} input tokens")
        if cut.items:
            click.echo(cost.text() if cost else UNPRICED)
            if over := _over_the_cap(request.settings.max_cost, cost):
                click.echo(over)
        if uses_no_field(request.settings):
            click.echo(NO_FIELD)
        for problem in cut.problems:
            click.echo(f"problem: {safe(str(problem))}")
    if cut.bad and not request.settings.skip_bad:
        raise InputError(
            f"submit would refuse this input: {counted(cut.bad, 'bad record')}",
            hint="correct them, or give --skip-bad to send the rest",
        )


def _over_the_cap(cap: float | None, cost: CostRange | None) -> str | None:
    """What --max-cost would do to this plan, where it may do something."""
    if cap is None or cost is None or cost.high is None or cost.high <= cap:
        return None
    return f"that may be over --max-cost ${cap:,.2f}: a batch that could take the run over it would not be sent"


def _rounded(cost: CostRange) -> dict[str, Any]:
    low, high = (None if value is None else round(value, MONEY_PLACES) for value in (cost.low, cost.high))
    return {"low": low, "high": high, "source": cost.source}
