"""The sync lane of every adapter: one call, the body as it is, the limits it reported, a deadline that holds."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from batchctl.core.errors import Fault, ProviderError
from batchctl.core.model import Outcome
from batchctl.providers import registry, wire
from batchctl.providers.base import Completion
from batchctl.providers.wire import proxy_of
from batchctl.simulator import SyncLimits, answer
from tests.contract.conftest import KEY, SYNC_CALLS, Bench, MakeBench, harmless


async def ask(bench: Bench, prompt: str = "hello", **more: Any) -> Completion:
    """One completion."""
    body = more.pop("body", None) or bench.body(prompt)
    completion: Completion = await bench.provider.complete(
        "i0", bench.form.default_endpoint, body, timeout=more.pop("timeout", 10.0)
    )
    return completion


async def test_one_answer_and_its_limits(make_bench: MakeBench, name: str) -> None:
    """The answer is parsed like a batch line, and the limit headers are read in both forms."""
    limits = SyncLimits(requests_per_minute=50, tokens_per_minute=10_000, output_tokens_per_minute=5_000)
    bench = make_bench(**{f"{name}_limits": limits})
    completion = await ask(bench, "hello \u2028 there")
    assert completion.answer.custom_id == "i0"
    assert completion.answer.text == answer("hello \u2028 there")
    assert completion.answer.usage is not None
    rate = completion.rate
    assert rate is not None
    assert (rate.requests_limit, rate.requests_remaining) == (50, 49)
    assert rate.tokens_limit == 10_000
    assert rate.tokens_remaining is not None
    assert rate.tokens_remaining <= 10_000
    assert rate.output_tokens_limit == (5_000 if name == "anthropic" else None)


async def test_many_at_once_over_one_session(bench: Bench) -> None:
    """A hundred calls in flight each get their own answer."""
    completions = await asyncio.gather(*(ask(bench, f"prompt {number}") for number in range(100)))
    assert [completion.answer.text for completion in completions] == [answer(f"prompt {n}") for n in range(100)]
    assert bench.calls(SYNC_CALLS[bench.name]) == 100


@pytest.mark.parametrize(
    ("action", "fault"),
    [
        ({"action": "status", "status": 429, "headers": {"retry-after": "3"}}, Fault.RETRY),
        ({"action": "status", "status": 429, "headers": {"retry-after-ms": "3000"}}, Fault.RETRY),
        ({"action": "error", "name": "insufficient_quota"}, Fault.SYSTEMIC),
        ({"action": "error", "name": "low_credit"}, Fault.SYSTEMIC),
        ({"action": "error", "name": "spend_limit"}, Fault.SYSTEMIC),
        ({"action": "error", "name": "model_not_found"}, Fault.SYSTEMIC),
        ({"action": "error", "name": "overloaded"}, Fault.RETRY),
        ({"action": "status", "status": 500}, Fault.RETRY),
        ({"action": "status", "status": 503, "body": ""}, Fault.RETRY),
        ({"action": "html"}, Fault.RETRY),
        ({"action": "html", "status": 200}, Fault.AMBIGUOUS),
        ({"action": "drop"}, Fault.AMBIGUOUS),
        ({"action": "status", "status": 400}, Fault.PERMANENT),
        ({"action": "status", "status": 413}, Fault.PERMANENT),
        ({"action": "status", "status": 402}, Fault.SYSTEMIC),
        ({"action": "status", "status": 302, "headers": {"Location": "/elsewhere"}}, Fault.SYSTEMIC),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else str(value),
)
async def test_failures_are_classified_after_one_call(bench: Bench, action: dict[str, Any], fault: Fault) -> None:
    """One HTTP call each, no retry inside, waits read in seconds (field reports 139, 144, 145 and 150)."""
    bench.fault(SYNC_CALLS[bench.name], **action)
    with pytest.raises(ProviderError) as caught:
        await ask(bench)
    assert harmless(caught.value).fault is fault
    assert caught.value.retry_after == (3.0 if any("retry" in name for name in action.get("headers", {})) else None)
    assert bench.calls(SYNC_CALLS[bench.name]) == 1


@pytest.mark.parametrize(
    "action",
    [{"action": "hang", "seconds": 30}, {"action": "slow", "bytes": 1, "delay": 0.05}],
    ids=["hang", "trickle"],
)
async def test_the_deadline_is_total(bench: Bench, action: dict[str, Any]) -> None:
    """Neither silence nor a trickle holds a call beyond its deadline (field report 159)."""
    bench.fault(SYNC_CALLS[bench.name], **action)
    start = time.monotonic()
    with pytest.raises(ProviderError) as caught:
        await ask(bench, timeout=0.2)
    assert time.monotonic() - start < 2
    assert caught.value.fault is Fault.AMBIGUOUS
    assert "after 0.2 s" in caught.value.message


async def test_an_answer_without_an_end_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It costs so much memory and no more, and is not asked for again (it may be billed)."""
    monkeypatch.setattr(wire, "LONGEST_BODY", 50)
    with pytest.raises(ProviderError) as caught:
        await ask(bench)
    assert harmless(caught.value).fault is Fault.PERMANENT
    assert "more than 50 bytes" in str(caught.value)


async def test_a_refusal_is_an_answer(bench: Bench) -> None:
    """A refused prompt has an outcome and a stop reason, and is no error (field report 116)."""
    bench.sim.set_faults({"items": [{"kind": "refusal"}]})
    completion = await ask(bench)
    assert completion.answer.outcome is Outcome.SUCCEEDED
    assert completion.answer.stop_reason == "refusal"


async def test_refused_credentials(make_bench: MakeBench) -> None:
    """A wrong key is systemic and is not repeated in the text (field report 147)."""
    bench = make_bench(key="bad-key")
    with pytest.raises(ProviderError) as caught:
        await ask(bench)
    assert (harmless(caught.value).fault, caught.value.status) == (Fault.SYSTEMIC, 401)


async def test_nobody_listens(name: str) -> None:
    """No connection, nothing accepted."""
    bench = Bench(name, None, registry.sync_provider(name, base_url="http://127.0.0.1:9/v1", api_key=KEY))  # type: ignore[arg-type]
    with pytest.raises(ProviderError) as caught:
        await ask(bench)
    assert harmless(caught.value).fault is Fault.RETRY
    await bench.provider.aclose()


@pytest.mark.parametrize(
    ("environment", "base_url", "wanted"),
    [
        ({}, "https://api.example.com", {}),
        ({"https_proxy": "http://p:3128"}, "https://api.example.com/v1", {"proxy": "http://p:3128"}),
        ({"https_proxy": "p:3128"}, "https://api.example.com", {"proxy": "http://p:3128"}),
        ({"all_proxy": "http://p:1"}, "http://api.example.com:8080", {"proxy": "http://p:1"}),
        ({"https_proxy": "http://p:1", "no_proxy": "example.com"}, "https://api.example.com", {}),
        ({"http_proxy": "http://p:1", "no_proxy": "127.0.0.1"}, "http://127.0.0.1:8000", {}),
        (
            {"https_proxy": "http://me:s%40crt@p:1"},
            "https://api.example.com",
            {"proxy": "http://p:1", "proxy_headers": {"Proxy-Authorization": "Basic bWU6c0BjcnQ="}},
        ),
    ],
)
def test_the_environments_proxy(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], base_url: str, wanted: dict[str, Any]
) -> None:
    """The sync lane goes through the same proxy as the SDK, with its credentials beside the address."""
    for variable in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.upper(), raising=False)
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    assert proxy_of(base_url) == wanted
