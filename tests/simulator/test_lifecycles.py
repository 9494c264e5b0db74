"""Both batch lifecycles, as the real SDKs see them."""

from collections.abc import Callable

import anthropic
import openai
import pytest

from batchctl.simulator import answer
from tests.simulator.conftest import Bench, chat_line


async def test_an_anthropic_batch_from_create_to_results(bench: Bench) -> None:
    """Counts stay zero until the end; results come out of order, each answer with its own prompt."""
    texts = [f"text number {n}" for n in range(20)]
    batch = await bench.create_anthropic(texts)
    bench.sim.advance(30)
    running = await bench.anthropic.messages.batches.retrieve(batch.id)
    assert (running.processing_status, running.request_counts.processing) == ("in_progress", 20)
    assert running.request_counts.succeeded == 0
    assert running.results_url is None
    bench.sim.advance(60)
    ended = await bench.anthropic.messages.batches.retrieve(batch.id)
    assert ended.processing_status == "ended"
    assert ended.request_counts.succeeded == 20
    assert (ended.expires_at - ended.created_at).total_seconds() == 86_400
    results = await bench.anthropic_results(batch.id)
    assert list(results) != [f"i{n}" for n in range(20)]
    for n, text in enumerate(texts):
        message = results[f"i{n}"].message
        assert message.content[0].text == answer(text)
        assert message.usage.service_tier == "batch"


async def test_an_openai_batch_from_upload_to_output(bench: Bench) -> None:
    """Statuses pass in order with live counts; a clean batch has an output file and no error file."""
    batch = await bench.create_openai([chat_line(f"i{n}", f"text number {n}") for n in range(10)])
    seen = [batch.status]
    for seconds in (1.5, 30, 30, 5):
        bench.sim.advance(seconds)
        shown = await bench.openai.batches.retrieve(batch.id)
        seen.append(shown.status)
        if seconds == 30 and shown.status == "in_progress":
            assert shown.request_counts is not None
            assert 0 < shown.request_counts.completed < 10
    assert seen == ["validating", "in_progress", "in_progress", "finalizing", "completed"]
    assert shown.request_counts is not None
    assert shown.request_counts.model_dump() == {"total": 10, "completed": 10, "failed": 0}
    assert shown.error_file_id is None
    assert shown.metadata == {"run": "r1"}
    lines = await bench.openai_lines(shown.output_file_id)
    assert [line["custom_id"] for line in lines] != [f"i{n}" for n in range(10)]
    for line in lines:
        text = line["response"]["body"]["choices"][0]["message"]["content"]
        assert text == answer(f"text number {line['custom_id'][1:]}")
    assert shown.output_file_id is not None
    stored = await bench.openai.files.retrieve(shown.output_file_id)
    assert stored.bytes > 0


async def test_cancel_keeps_what_was_finished(bench: Bench) -> None:
    """A canceled batch ends with the results it has, on both providers."""
    theirs = await bench.create_anthropic([f"a {n}" for n in range(10)])
    ours = await bench.create_openai([chat_line(f"i{n}", f"b {n}") for n in range(10)])
    bench.sim.advance(31)
    assert (await bench.anthropic.messages.batches.cancel(theirs.id)).processing_status == "canceling"
    assert (await bench.openai.batches.cancel(ours.id)).status == "cancelling"
    bench.sim.advance(2)
    ended = await bench.anthropic.messages.batches.retrieve(theirs.id)
    assert (ended.request_counts.succeeded, ended.request_counts.canceled) == (5, 5)
    canceled = await bench.openai.batches.retrieve(ours.id)
    assert canceled.status == "cancelled"
    assert len(await bench.openai_lines(canceled.output_file_id)) == 5
    assert canceled.error_file_id is None


async def test_a_slow_batch_expires_with_what_was_finished(bench_of: Callable[..., Bench]) -> None:
    """After 24 hours unfinished items expire, finished ones stay, on both providers."""
    bench = bench_of(batch_seconds=2 * 86_400)
    theirs = await bench.create_anthropic([f"a {n}" for n in range(10)])
    ours = await bench.create_openai([chat_line(f"i{n}", f"b {n}") for n in range(10)])
    bench.sim.advance(86_400)
    counts = (await bench.anthropic.messages.batches.retrieve(theirs.id)).request_counts
    assert (counts.succeeded, counts.expired, counts.processing) == (5, 5, 0)
    expired = await bench.openai.batches.retrieve(ours.id)
    assert expired.status == "expired"
    done = len(await bench.openai_lines(expired.output_file_id))
    late = await bench.openai_lines(expired.error_file_id)
    assert done + len(late) == 10
    assert {line["error"]["code"] for line in late} == {"batch_expired"}


async def test_lists_are_newest_first_and_paged(bench: Bench) -> None:
    """Both lists page from the newest batch on and lose none."""
    theirs = [(await bench.create_anthropic([f"x{n}"])).id for n in range(5)]
    ours = [(await bench.create_openai([chat_line("a", f"y{n}")])).id for n in range(5)]
    assert [b.id async for b in bench.anthropic.messages.batches.list(limit=2)] == theirs[::-1]
    assert [b.id async for b in bench.openai.batches.list(limit=2)] == ours[::-1]
    page = await bench.anthropic.messages.batches.list(limit=2, before_id=theirs[0])
    assert [b.id for b in page.data] == [theirs[2], theirs[1]]
    files = [file async for file in bench.openai.files.list(purpose="batch", order="asc", limit=2)]
    assert [file.filename for file in files] == ["in.jsonl"] * 5


async def test_delete(bench: Bench) -> None:
    """A batch goes only once it has ended; a file goes at once."""
    batch = await bench.create_anthropic(["x"])
    with pytest.raises(anthropic.BadRequestError):
        await bench.anthropic.messages.batches.delete(batch.id)
    bench.sim.advance(100)
    await bench.anthropic.messages.batches.delete(batch.id)
    with pytest.raises(anthropic.NotFoundError):
        await bench.anthropic.messages.batches.retrieve(batch.id)
    ours = await bench.create_openai([chat_line("a", "x")])
    assert (await bench.openai.files.delete(ours.input_file_id)).deleted
    with pytest.raises(openai.NotFoundError):
        await bench.openai.files.retrieve(ours.input_file_id)
