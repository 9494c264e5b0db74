"""What Anthropic's side refuses and how, and its single calls."""

from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from batchctl.simulator import answer
from tests.simulator.conftest import MODEL, Bench, request


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([], "requests"),
        ([request("a/b", "x")], "requests.0.custom_id"),
        ([request("a", "x"), request("x" * 65, "y")], "requests.1.custom_id"),
        ([request("a", "x"), request("a", "y")], "requests.1.custom_id: Duplicate"),
        ([request(f"i{n}", "x") for n in range(4)], "at most 3"),
        ([{"custom_id": "a"}], "requests.0.params"),
    ],
)
async def test_a_bad_create_is_refused_whole(bench_of: Callable[..., Bench], requests: Any, message: str) -> None:
    """Ids, duplicates and counts are checked at create; nothing is accepted."""
    bench = bench_of(anthropic_max_requests=3)
    with pytest.raises(anthropic.BadRequestError, match=message):
        await bench.anthropic.messages.batches.create(requests=requests)
    assert bench.sim.ledger() == []


async def test_bad_params_show_late_and_twice_nested(bench: Bench) -> None:
    """Sampling parameters, streaming and a missing limit become errored lines, not a refused create."""
    bad = {
        "temperature": request("temperature", "x", temperature=1.0),
        "stream": request("stream", "x", stream=True),
        "max_tokens": request("max_tokens", "x", max_tokens=0),
        "messages": request("messages", " "),
        "model": request("model", "x", model="no-such-model"),
    }
    batch = await bench.anthropic.messages.batches.create(requests=[*bad.values(), request("good", "x")])
    bench.sim.advance(100)
    results = await bench.anthropic_results(batch.id)
    assert results["good"].type == "succeeded"
    for name in bad:
        assert results[name].type == "errored"
        assert results[name].error.type == "error"
        assert name in results[name].error.error.message
    assert results["model"].error.error.type == "not_found_error"


async def test_older_version_takes_sampling_parameters(bench: Bench) -> None:
    """Pinning the older version keeps temperature valid."""
    batch = await bench.anthropic.messages.batches.create(
        requests=[request("a", "x", temperature=0.0)], extra_headers={"anthropic-version": "2023-06-01"}
    )
    bench.sim.advance(100)
    assert (await bench.anthropic_results(batch.id))["a"].type == "succeeded"


async def test_a_large_body_is_refused_with_413(bench_of: Callable[..., Bench]) -> None:
    """A body over the limit gets request_too_large."""
    bench = bench_of(anthropic_max_bytes=10_000)
    with pytest.raises(anthropic.APIStatusError) as caught:
        await bench.create_anthropic(["x" * 20_000])
    assert caught.value.status_code == 413
    assert "request_too_large" in caught.value.response.text


async def test_a_single_message(bench: Bench) -> None:
    """A message answers with usage; counting agrees with it; a small limit truncates."""
    body: Any = {"model": MODEL, "messages": [{"role": "user", "content": "Say something longer, please"}]}
    message = await bench.anthropic.messages.create(max_tokens=64, **body)
    assert message.content[0].text == answer("Say something longer, please")
    assert (message.stop_reason, message.usage.service_tier) == ("end_turn", "standard")
    counted = await bench.anthropic.messages.count_tokens(**body)
    assert counted.input_tokens == message.usage.input_tokens
    cut = await bench.anthropic.messages.create(max_tokens=2, **body)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)


async def test_models_can_be_asked(bench: Bench) -> None:
    """A model tells that it works in batches; an unknown one is not found."""
    model = await bench.anthropic.models.retrieve(MODEL)
    assert model.capabilities is not None
    assert model.capabilities.batch.supported
    with pytest.raises(anthropic.NotFoundError):
        await bench.anthropic.models.retrieve("no-such-model")


@pytest.mark.parametrize(
    ("key", "failure"),
    [("bad-key", anthropic.AuthenticationError), ("no-batch-key", anthropic.PermissionDeniedError)],
)
async def test_keys(bench: Bench, key: str, failure: type[Exception]) -> None:
    """A bad key is refused, and so is one without the batch permission."""
    async with anthropic.AsyncAnthropic(api_key=key, base_url=bench.sim.anthropic_base_url, max_retries=0) as client:
        with pytest.raises(failure):
            await client.messages.batches.list()


async def test_the_other_key_header_works(bench: Bench) -> None:
    """The older x-api-key header is as good as the bearer token."""
    headers: Any = {"x-api-key": "k", "Authorization": anthropic.Omit()}
    assert (await bench.anthropic.messages.batches.list(extra_headers=headers)).data == []


async def test_results_are_archived_after_29_days(bench: Bench) -> None:
    """The object stays, its results go."""
    batch = await bench.create_anthropic(["x"])
    bench.sim.advance(29 * 86_400)
    shown = await bench.anthropic.messages.batches.retrieve(batch.id)
    assert shown.results_url is None
    assert shown.archived_at is not None


async def test_the_queue_refuses_at_create(bench_of: Callable[..., Bench]) -> None:
    """Requests over the queue limit get 429 until a batch has ended."""
    bench = bench_of(anthropic_queue_requests=3)
    await bench.create_anthropic(["a", "b"])
    with pytest.raises(anthropic.RateLimitError):
        await bench.create_anthropic(["c", "d"])
    bench.sim.advance(100)
    await bench.create_anthropic(["c", "d"])
