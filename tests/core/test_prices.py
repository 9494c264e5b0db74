"""Costs equal what genai-prices calculates, at a fraction of the time."""

from __future__ import annotations

from datetime import UTC, datetime

import genai_prices
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchctl.core.model import Usage
from batchctl.core.prices import Rates

AT = datetime(2026, 11, 1, tzinfo=UTC)
MODELS = [
    ("anthropic", "claude-sonnet-4-5"),
    ("anthropic", "claude-haiku-4-5"),
    ("anthropic", "claude-opus-4-6"),
    ("anthropic", "claude-haiku-5-5"),
    ("anthropic", "claude-2"),
    ("openai", "gpt-5-mini"),
    ("openai", "gpt-5.4"),
    ("openai", "gpt-5.5"),
    ("openai", "gpt-4o"),
    ("openai", "o1"),
    ("openai", "o3"),
    ("openai", "gpt-6-sol"),
    ("openai", "text-embedding-3-small"),
    ("google", "gemini-2.5-pro"),
]


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize(("provider", "model"), MODELS)
@settings(max_examples=15)
@given(
    plain=st.integers(0, 500_000) | st.sampled_from([199_999, 200_000, 200_001, 272_000, 272_001]),
    cached=st.integers(0, 300_000),
    written=st.integers(0, 300_000),
    output=st.integers(0, 100_000),
)
def test_costs_equal_the_price_table(
    provider: str, model: str, plain: int, cached: int, written: int, output: int, *, batch: bool
) -> None:
    """Plain, cached and cache-writing tokens cost what the table says, over every context level."""
    rates = Rates.load(provider, model, batch=batch, at=AT)
    assert rates is not None
    expected = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=plain + cached + written,
            output_tokens=output,
            cache_read_tokens=cached,
            cache_write_tokens=written,
        ),
        model,
        provider_id=provider,
        genai_request_timestamp=AT,
        price_context={"processing": "batch"} if batch else None,
    ).total_price
    assert rates.cost(Usage(plain + cached + written, output, cached, written)) == pytest.approx(
        float(expected), rel=1e-9
    )


def test_batch_prices_are_half() -> None:
    """Where the table has batch prices they are used."""
    usage = Usage(1000, 1000)
    batch = Rates.load("anthropic", "claude-sonnet-4-5", batch=True, at=AT)
    standard = Rates.load("anthropic", "claude-sonnet-4-5", batch=False, at=AT)
    assert batch is not None
    assert standard is not None
    assert batch.cost(usage) == pytest.approx(standard.cost(usage) / 2)
    assert batch.batch_price_known
    assert standard.batch_price_known
    assert batch.source == f"genai-prices {genai_prices.__version__}, claude-sonnet-4-5"


def test_a_missing_batch_price_is_told() -> None:
    """Where the table has none the standard price stands in, and it is said."""
    batch = Rates.load("openai", "text-embedding-3-small", batch=True, at=AT)
    standard = Rates.load("openai", "text-embedding-3-small", batch=False, at=AT)
    assert batch is not None
    assert standard is not None
    assert not batch.batch_price_known
    assert batch.cost(Usage(1000)) == standard.cost(Usage(1000)) > 0


@pytest.mark.parametrize(
    ("provider", "model"), [("openai", "no-such-model"), ("nobody", "gpt-4o"), ("openai", "whisper-1")]
)
def test_unknown_prices_are_none(provider: str, model: str) -> None:
    """A model without token prices has no cost rather than a wrong one."""
    assert Rates.load(provider, model, batch=True, at=AT) is None


def test_contradictory_usage_costs_what_it_says() -> None:
    """A provider that reports more cached than input tokens makes no negative cost."""
    rates = Rates.load("anthropic", "claude-sonnet-4-5", batch=True, at=AT)
    assert rates is not None
    assert rates.cost(Usage(0, 0, 10, 0)) > 0
