"""Keeps a run under --max-cost: nothing is sent that could take it over, judged by what open batches may still cost."""

from __future__ import annotations

from batchctl.core.errors import SystemicError
from batchctl.core.model import BatchState, Usage
from batchctl.runs.held import HeldRun
from batchctl.state.rows import BatchRow

ESTIMATE_MARGIN = 1.3  # token estimates are rough; a cap must hold all the same
ASSUMED_OUTPUT = 4096  # output tokens of an answer where no limit is set

MAY_COST = (BatchState.SUBMITTING, BatchState.UNKNOWN, BatchState.IN_PROGRESS, BatchState.CANCELING, BatchState.ENDED)


def affordable(run: HeldRun, batch: BatchRow) -> bool:
    """Whether a batch may be sent under the cap; false while open batches may still leave room for it.

    Raises:
        SystemicError: it cannot be sent however the open ones end, or the model has no known price.
    """
    cap = run.settings.max_cost
    if cap is None:
        return True
    committed = run.refresh().cost_usd + sum(
        _highest_cost(run, other) for other in run.store.batches.in_state(run.id, *MAY_COST)
    )
    if committed + _highest_cost(run, batch) <= cap:
        return True
    if run.store.batches.in_state(run.id, *MAY_COST):
        return False
    raise SystemicError(
        f"batch {batch.number} could cost up to ${_highest_cost(run, batch):,.2f}, ${run.row.cost_usd:,.2f} is spent: "
        f"over the cap of ${cap:,.2f}",
        hint="raise --max-cost, or lower --max-tokens or --max-requests in a new run",
    )


def _highest_cost(run: HeldRun, batch: BatchRow) -> float:
    """Dollars a batch costs when every answer is as long as it may be."""
    rates = run.rates(run.settings.model, batch=True)
    if rates is None:
        raise SystemicError(
            f"no price is known for {run.settings.model or 'finished requests'}, so --max-cost cannot be kept",
            hint="leave --max-cost out",
        )
    tokens = Usage(
        input_tokens=round(ESTIMATE_MARGIN * batch.tokens / max(1, batch.requests)),
        output_tokens=run.settings.max_tokens or ASSUMED_OUTPUT,
    )
    return batch.requests * rates.cost(tokens)
