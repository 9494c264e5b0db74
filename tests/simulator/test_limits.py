"""Per-minute limits of single calls, and the headers that tell of them."""

from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from batchctl.simulator import SyncLimits
from batchctl.simulator.limits import Meter
from tests.simulator.conftest import GPT, MODEL, Bench

Start = Callable[..., Bench]
MESSAGES: Any = [{"role": "user", "content": "x" * 40}]


def test_a_strict_window_lets_nothing_over_the_limit() -> None:
    """The minute slides: room appears exactly as old takings leave it."""
    meter = Meter(10, bucket=False)
    meter.take(6, 0.0)
    meter.take(4, 30.0)
    assert meter.wait(1, 59.0) == pytest.approx(1.0)
    assert meter.wait(6, 60.0) == 0.0
    assert meter.wait(7, 60.0) == pytest.approx(30.0)
    assert meter.peak == 10


def test_a_bucket_refills_all_the_time() -> None:
    """A bucket starts full and refills evenly, never above its size."""
    meter = Meter(60, bucket=True)
    assert meter.wait(60, 1000.0) == 0.0
    meter.take(60, 1000.0)
    assert meter.wait(5, 1000.0) == pytest.approx(5.0)
    assert meter.remaining(1010.0) == 10
    assert meter.remaining(5000.0) == 60


async def test_anthropic_refuses_and_tells(bench_of: Start) -> None:
    """Headers count down; the refusal says when to come back; then it works again."""
    bench = bench_of(anthropic_limits=SyncLimits(requests_per_minute=2, tokens_per_minute=10_000))
    call = bench.anthropic.messages.with_raw_response
    first = await call.create(model=MODEL, max_tokens=9, messages=MESSAGES)
    assert first.headers["anthropic-ratelimit-requests-remaining"] == "1"
    assert first.headers["anthropic-ratelimit-input-tokens-limit"] == "10000"
    bench.sim.advance(20)
    await call.create(model=MODEL, max_tokens=9, messages=MESSAGES)
    with pytest.raises(anthropic.RateLimitError) as caught:
        await call.create(model=MODEL, max_tokens=9, messages=MESSAGES)
    assert caught.value.response.headers["retry-after"] == "40"
    bench.sim.advance(40)
    await call.create(model=MODEL, max_tokens=9, messages=MESSAGES)
    assert bench.sim.stats()["limits"]["anthropic"] == {
        "requests": {"limit": 2, "peak_minute": 2},
        "tokens": {"limit": 10_000, "peak_minute": 26},
        "refused": 1,
    }


async def test_openai_refuses_and_tells(bench_of: Start) -> None:
    """Durations in the headers, milliseconds too, and a reserve by max_tokens when asked."""
    bench = bench_of(openai_limits=SyncLimits(tokens_per_minute=1000, openai_charge="reserve", algorithm="bucket"))
    call = bench.openai.chat.completions.with_raw_response
    first = await call.create(model=GPT, messages=MESSAGES, max_tokens=900)
    assert first.headers["x-ratelimit-remaining-tokens"] == "100"
    assert first.headers["x-ratelimit-reset-tokens"] == "54s"
    with pytest.raises(openai.RateLimitError) as caught:
        await call.create(model=GPT, messages=MESSAGES, max_tokens=200)
    assert caught.value.code == "rate_limit_exceeded"
    assert caught.value.response.headers["retry-after-ms"] == "6000"


async def test_output_tokens_have_their_own_limit(bench_of: Start) -> None:
    """Anthropic's output limit counts what is produced, not max_tokens."""
    bench = bench_of(anthropic_limits=SyncLimits(output_tokens_per_minute=20))
    call = bench.anthropic.messages
    await call.create(model=MODEL, max_tokens=5000, messages=MESSAGES)
    with pytest.raises(anthropic.RateLimitError, match="output tokens"):
        await call.create(model=MODEL, max_tokens=5000, messages=MESSAGES)


async def test_answers_take_their_time(bench_of: Start) -> None:
    """Latency is virtual: a fast clock shortens it."""
    bench = bench_of(speed=1000, latency_seconds=20, latency_spread=0.3)
    before = bench.sim.now()
    await bench.anthropic.messages.create(model=MODEL, max_tokens=9, messages=MESSAGES)
    assert bench.sim.now() - before > 10
