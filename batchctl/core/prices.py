"""What tokens cost, from the price table inside the genai-prices package; nothing is fetched."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from batchctl.core.model import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

_BATCH = {"processing": "batch"}
_PER = 1_000_000
MONEY_PLACES = 8  # of a dollar; a sum of prices carries float noise past them
_ANSWER_PLACES = 10  # a token may cost less than a millionth of a dollar
_INPUT, _CACHE_READ, _CACHE_WRITE, _OUTPUT = _KEYS = (
    "input_mtok",
    "cache_read_mtok",
    "cache_write_mtok",
    "output_mtok",
)


@dataclass(frozen=True, slots=True)
class _Level:
    """Dollars per token for requests with more than `above` input tokens."""

    above: int
    input: float
    cache_read: float
    cache_write: float
    output: float


@dataclass(frozen=True, slots=True)
class Rates:
    """The prices of one model.

    Args:
        source: where they come from.
        batch_price_known: false where batch prices were asked for and the table has only standard ones.
    """

    source: str
    batch_price_known: bool
    _levels: tuple[_Level, ...]

    @classmethod
    def load(cls, provider: str, model: str, *, batch: bool, at: datetime) -> Rates | None:
        """Look up a model's prices as of `at`; None where the table has none for its tokens."""
        import genai_prices

        try:
            found = genai_prices.calc_price(
                genai_prices.Usage(),
                model,
                provider_id=provider,
                genai_request_timestamp=at,
                price_context=_BATCH if batch else None,
            )
        except LookupError:
            return None
        price = found.model_price
        if getattr(price, _INPUT) is None and getattr(price, _OUTPUT) is None:
            return None
        source = f"genai-prices {genai_prices.__version__}, {found.model.id}"
        return cls(source, not batch or _has_batch_price(found.model, at), _levels(price))

    def cost(self, usage: Usage) -> float:
        """Dollars for one answer; a larger context may cost more for all of its tokens."""
        for level in self._levels:
            if usage.input_tokens > level.above:
                break
        plain = max(usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens, 0)
        cost = (
            plain * level.input
            + usage.cached_input_tokens * level.cache_read
            + usage.cache_write_tokens * level.cache_write
            + usage.output_tokens * level.output
        )
        return round(cost, _ANSWER_PLACES)


def _has_batch_price(model: ModelInfo, at: datetime) -> bool:
    return any(
        variant.when == _BATCH and (variant.constraint is None or variant.constraint.active(at))
        for variant in model.price_variants or ()
    )


def _levels(price: ModelPrice) -> tuple[_Level, ...]:
    """The levels from the highest down to one that takes every request."""
    starts = {-1}
    for key in _KEYS:
        starts.update(tier.start for tier in getattr(getattr(price, key), "tiers", ()))
    return tuple(_level(price, start) for start in sorted(starts, reverse=True))


def _level(price: ModelPrice, above: int) -> _Level:
    """The rates just above a level; cached tokens without a price of their own cost what input costs."""
    plain = _rate(getattr(price, _INPUT), above) or 0.0
    read, write = (_rate(getattr(price, key), above) for key in (_CACHE_READ, _CACHE_WRITE))
    return _Level(
        above,
        input=plain,
        cache_read=plain if read is None else read,
        cache_write=plain if write is None else write,
        output=_rate(getattr(price, _OUTPUT), above) or 0.0,
    )


def _rate(price: Any, above: int) -> float | None:
    """Dollars per token of a price that may have tiers."""
    if price is None:
        return None
    tiers = [tier for tier in getattr(price, "tiers", ()) if tier.start <= above]
    per_million = tiers[-1].price if tiers else getattr(price, "base", price)
    return float(per_million / _PER)
