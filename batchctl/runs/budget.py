"""Keeps a run under --max-cost: nothing is sent that could take it over, judged by what open batches may still cost."""

from __future__ import annotations

from datetime import datetime

from batchctl.core.errors import InputError, SystemicError
from batchctl.core.model import MAY_ANSWER, Lane
from batchctl.core.prices import Rates
from batchctl.runs.costs import cost_at_most
from batchctl.runs.held import HeldRun
from batchctl.runs.settings import Settings
from batchctl.state.rows import BatchRow

ASSUMED_OUTPUT = 4096  # output tokens of an answer where no limit is set


def refuse_unpriced(settings: Settings, at: datetime) -> None:
    """Refuse a cap that cannot be kept, before anything is made.

    Raises:
        InputError: finished requests tell neither model nor length of answers, or the model has no known price.
    """
    if settings.max_cost is None:
        return
    if settings.requests:
        unknown = "what finished requests may cost is not known"
    elif settings.model is None or Rates.load(settings.provider, settings.model, batch=True, at=at) is None:
        unknown = f"no price is known for {settings.model or 'this run'}"
    else:
        return
    raise InputError(f"{unknown}, so --max-cost cannot be kept", hint="leave --max-cost out")


def affordable(run: HeldRun, batch: BatchRow) -> bool:
    """Whether a batch may be sent under the cap; false while open batches may still leave room for it.

    Raises:
        SystemicError: it cannot be sent however the open ones end, or the model has no known price.
    """
    cap = run.settings.max_cost
    if cap is None:
        return True
    most = _highest_cost_of(run, batch)
    if run.refresh().cost_usd + committed(run) + most <= cap:
        return True
    if run.store.batches.in_state(run.id, *MAY_ANSWER):
        return False
    raise SystemicError(
        f"batch {batch.number} could cost up to ${most:,.2f}, ${run.row.cost_usd:,.2f} is spent: "
        f"over the cap of ${cap:,.2f}",
        hint="raise --max-cost, or lower --max-tokens or --max-requests in a new run",
    )


def committed(run: HeldRun) -> float:
    """Dollars that batches at the provider may still cost."""
    return sum(_highest_cost_of(run, batch) for batch in run.store.batches.in_state(run.id, *MAY_ANSWER))


def _highest_cost_of(run: HeldRun, batch: BatchRow) -> float:
    return batch.requests * highest_cost(run, batch.tokens // max(1, batch.requests), Lane.BATCH)


def highest_cost(run: HeldRun, tokens: int, lane: Lane) -> float:
    """Dollars a request of so many estimated tokens costs when its answer is as long as it may be.

    Raises:
        SystemicError: the model has no known price.
    """
    rates = run.rates(run.settings.model, batch=lane is Lane.BATCH)
    if rates is None:
        raise SystemicError(
            f"no price is known for {run.settings.model or 'finished requests'}, so --max-cost cannot be kept",
            hint="leave --max-cost out",
        )
    return cost_at_most(rates, tokens, run.settings.max_tokens or ASSUMED_OUTPUT)
