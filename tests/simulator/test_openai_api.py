"""What OpenAI's side refuses and when, and its single calls."""

from collections.abc import Callable
from typing import Any

import openai
import pytest

from batchctl.simulator import answer
from tests.simulator.conftest import GPT, Bench, chat_line


@pytest.mark.parametrize(
    ("lines", "code", "line"),
    [
        ([], "empty_file", None),
        ([chat_line("a", "x"), b"{broken\n"], "invalid_json_line", 2),
        ([chat_line("a", "x"), b"\n", chat_line("b", "x")], "invalid_json_line", 2),
        ([b"\xef\xbb\xbf", chat_line("a", "x")], "invalid_json_line", 1),
        ([chat_line("a", "x"), chat_line("a", "y")], "duplicate_custom_id", 2),
        ([chat_line("a", "x"), chat_line("b", "y", model="gpt-4o")], "mismatched_model", 2),
        ([chat_line("a", "x", url="/v1/responses")], "url_mismatch", 1),
        ([chat_line("a", "x", messages=None)], "missing_required_parameter", 1),
        ([chat_line("a", "x", model="no-such-model")], "model_not_found", 1),
        ([chat_line("a", "x", stream=True)], "invalid_value", 1),
        ([chat_line(f"i{n}", "x") for n in range(4)], "too_many_tasks", None),
    ],
)
async def test_a_bad_file_fails_late_and_whole(
    bench_of: Callable[..., Bench], lines: list[Any], code: str, line: int | None
) -> None:
    """Create succeeds; the batch then fails with coded, line-numbered errors and runs nothing."""
    bench = bench_of(openai_max_requests=3)
    batch = await bench.create_openai(lines)
    assert batch.status == "validating"
    bench.sim.advance(2)
    failed = await bench.openai.batches.retrieve(batch.id)
    assert failed.status == "failed"
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert (failed.errors.data[0].code, failed.errors.data[0].line) == (code, line)
    assert (failed.output_file_id, failed.error_file_id) == (None, None)
    assert {entry["outcome"] for entry in bench.sim.ledger()} <= {"failed"}


async def test_an_unknown_file_is_accepted_and_fails(bench: Bench) -> None:
    """Create does not look for the file."""
    batch = await bench.openai.batches.create(
        input_file_id="file-none", endpoint="/v1/chat/completions", completion_window="24h"
    )
    bench.sim.advance(2)
    assert (await bench.openai.batches.retrieve(batch.id)).status == "failed"


async def test_failing_items_go_to_the_error_file(bench: Bench) -> None:
    """A batch whose items all fail is completed, without output file; the error sits in the response body."""
    batch = await bench.create_openai([chat_line("a", "x", model="gpt-5", temperature=0.2)])
    bench.sim.advance(100)
    shown = await bench.openai.batches.retrieve(batch.id)
    assert (shown.status, shown.output_file_id) == ("completed", None)
    (line,) = await bench.openai_lines(shown.error_file_id)
    assert line["error"] is None
    assert line["response"]["status_code"] == 400
    assert line["response"]["body"]["error"]["code"] == "unsupported_parameter"


async def test_uploads_are_checked(bench_of: Callable[..., Bench]) -> None:
    """The name must end in .jsonl, and the size has a limit."""
    bench = bench_of(openai_max_bytes=100)
    with pytest.raises(openai.BadRequestError, match="jsonl"):
        await bench.openai.files.create(file=("in.txt", b"{}"), purpose="batch")
    with pytest.raises(openai.APIStatusError) as caught:
        await bench.openai.files.create(file=("in.jsonl", b"x" * 1000), purpose="batch")
    assert caught.value.status_code == 413
    stored = await bench.openai.files.create(
        file=("in.jsonl", b"{}"), purpose="batch", expires_after={"anchor": "created_at", "seconds": 3600}
    )
    assert (stored.expires_at or 0) - stored.created_at == 3600
    bench.sim.advance(3601)
    with pytest.raises(openai.NotFoundError):
        await bench.openai.files.retrieve(stored.id)


async def test_the_token_queue(bench_of: Callable[..., Bench]) -> None:
    """A batch over the enqueued tokens fails without running; it passes once another has ended."""
    bench = bench_of(openai_enqueued_tokens=60)
    first = await bench.create_openai([chat_line("a", "x" * 160)])
    second = await bench.create_openai([chat_line("b", "y" * 160)])
    bench.sim.advance(2)
    assert (await bench.openai.batches.retrieve(first.id)).status == "in_progress"
    failed = await bench.openai.batches.retrieve(second.id)
    assert failed.errors is not None
    assert failed.errors.data is not None
    assert (failed.errors.data[0].code, failed.errors.data[0].line) == ("token_limit_exceeded", None)
    bench.sim.advance(100)
    again = await bench.create_openai([chat_line("b", "y" * 160)])
    bench.sim.advance(2)
    assert (await bench.openai.batches.retrieve(again.id)).status == "in_progress"
    assert bench.sim.violations() == []


async def test_single_calls(bench: Bench) -> None:
    """Chat, responses and embeddings answer in their own shapes."""
    chat = await bench.openai.chat.completions.create(model=GPT, messages=[{"role": "user", "content": "hello"}])
    assert chat.choices[0].message.content == answer("hello")
    assert chat.usage is not None
    assert chat.usage.prompt_tokens_details is not None
    response = await bench.openai.responses.create(model=GPT, input="hello", instructions="be brief")
    assert response.output_text == answer("hello", "be brief")
    vectors = await bench.openai.embeddings.create(model="text-embedding-3-small", input=["a", "b"])
    assert [len(entry.embedding) for entry in vectors.data] == [64, 64]
    with pytest.raises(openai.NotFoundError):
        await bench.openai.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": "x"}])


@pytest.mark.parametrize("endpoint", ["/v1/responses", "/v1/embeddings"])
async def test_batches_of_other_endpoints(bench: Bench, endpoint: str) -> None:
    """Responses and embeddings run in batches too."""
    line = {"custom_id": "a", "method": "POST", "url": endpoint, "body": {"model": GPT, "input": "hello"}}
    batch = await bench.create_openai([line], endpoint)
    bench.sim.advance(100)
    shown = await bench.openai.batches.retrieve(batch.id)
    (result,) = await bench.openai_lines(shown.output_file_id)
    assert result["response"]["status_code"] == 200


async def test_bad_creates_are_refused_at_once(bench: Bench) -> None:
    """Endpoint, window and metadata are checked by create itself."""
    arguments: dict[str, Any] = {"input_file_id": "f", "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    for change in ({"endpoint": "/v1/other"}, {"completion_window": "1h"}, {"metadata": {"k": "v" * 513}}):
        with pytest.raises(openai.BadRequestError):
            await bench.openai.batches.create(**(arguments | change))
