"""What a plan may cost, as a range: answers are only known afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from batchctl.core.model import Usage
from batchctl.core.prices import Rates
from batchctl.runs.context import utc_now
from batchctl.runs.cutting import Cut
from batchctl.runs.settings import Settings

ESTIMATE_MARGIN = 1.3  # token estimates are rough; a cap must hold all the same


def cost_at_most(rates: Rates, tokens: int, max_tokens: int) -> float:
    """Dollars of one request whose answer is as long as it may be.

    Args:
        tokens: its estimated input.
    """
    return rates.cost(Usage(input_tokens=round(ESTIMATE_MARGIN * tokens), output_tokens=max_tokens))


@dataclass(frozen=True, slots=True)
class CostRange:
    """Dollars: `low` with answers of a word, `high` with every answer at max_tokens (None without that limit)."""

    low: float
    high: float | None
    source: str
    batch_price_known: bool

    def text(self) -> str:
        """One line for people."""
        high = "no upper bound without --max-tokens" if self.high is None else f"at most about ${self.high:,.2f}"
        note = "" if self.batch_price_known else "; no batch price known, standard price used"
        return f"cost: at least about ${self.low:,.2f}, {high} ({self.source}{note})"


def cost_range(settings: Settings, cut: Cut) -> CostRange | None:
    """The cost of a plan, None where the model has no known price."""
    if settings.model is None or not cut.items:
        return None
    rates = Rates.load(settings.provider, settings.model, batch=True, at=utc_now())
    if rates is None:
        return None
    mean_input = cut.tokens // cut.items
    low = cut.items * rates.cost(Usage(input_tokens=mean_input, output_tokens=1))
    high = None
    if settings.max_tokens is not None:
        each = [(batch.requests, batch.tokens // batch.requests) for batch in cut.batches]
        high = sum(requests * cost_at_most(rates, tokens, settings.max_tokens) for requests, tokens in each)
    return CostRange(low, high, rates.source, rates.batch_price_known)
