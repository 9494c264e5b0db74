"""Faults of items, batches and uploads."""

from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from batchctl.simulator.kinds import ENDINGS, FAILURES, ODD_ANSWERS
from tests.simulator.conftest import MODEL, Bench, chat_line

Start = Callable[..., Bench]


def one_of_each(*kinds: str) -> dict[str, Any]:
    """Make a rule per kind, each for the item of that name."""
    return {"items": [{"custom_id": kind, "kind": kind} for kind in kinds]}


async def test_every_kind_on_anthropic(bench_of: Start) -> None:
    """Each kind becomes its result type; the counts add up."""
    kinds = [*ODD_ANSWERS, *FAILURES, *ENDINGS, "ok"]
    bench = bench_of(faults=one_of_each(*kinds))
    lines: Any = [
        {
            "custom_id": kind,
            "params": {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": f"text {kind}"}]},
        }
        for kind in kinds
    ]
    batch = await bench.anthropic.messages.batches.create(requests=lines)
    bench.sim.advance(100)
    results = await bench.anthropic_results(batch.id)
    assert set(kinds) - set(results) == {"missing"}
    assert {results[kind].type for kind in ODD_ANSWERS} == {"succeeded"}
    assert {results[kind].type for kind in FAILURES} == {"errored"}
    assert results["overloaded"].error.error.type == "overloaded_error"
    assert results["low_credit"].error.error.type == "invalid_request_error"
    assert results["expired"].type == "expired"
    assert results["truncated"].message.stop_reason == "max_tokens"
    assert results["refusal"].message.stop_reason == "refusal"
    assert results["null_content"].message.content == []
    assert "\u2028" in results["line_separators"].message.content[0].text
    counts = (await bench.anthropic.messages.batches.retrieve(batch.id)).request_counts
    assert sum(counts.model_dump().values()) == len(kinds)


async def test_every_kind_on_openai(bench_of: Start) -> None:
    """Each kind lands in the right file, or in none."""
    kinds = [*ODD_ANSWERS, *FAILURES, *ENDINGS, "ok"]
    bench = bench_of(faults=one_of_each(*kinds))
    batch = await bench.create_openai([chat_line(kind, f"text {kind}") for kind in kinds])
    bench.sim.advance(100)
    shown = await bench.openai.batches.retrieve(batch.id)
    output = {line["custom_id"]: line for line in await bench.openai_lines(shown.output_file_id)}
    errors = {line["custom_id"]: line for line in await bench.openai_lines(shown.error_file_id)}
    assert set(output) == {*ODD_ANSWERS, "ok"}
    assert set(errors) == {*FAILURES, "expired"}
    assert errors["status_0"]["response"]["status_code"] == 0
    assert errors["string_error"]["error"] == "boom"
    assert errors["expired"]["error"]["code"] == "batch_expired"
    message = output["refusal"]["response"]["body"]["choices"][0]["message"]
    assert (message["content"], bool(message["refusal"])) == (None, True)
    assert output["truncated"]["response"]["body"]["choices"][0]["finish_reason"] == "length"


async def test_an_item_succeeds_at_the_next_attempt(bench_of: Start) -> None:
    """`first_n_attempts` counts acceptances of the same body, in either lane, and resending is not paid twice."""
    bench = bench_of(faults={"items": [{"prompt_contains": "é seven", "first_n_attempts": 2, "kind": "api_error"}]})
    for expected in ("errored", "errored", "succeeded"):
        batch = await bench.create_anthropic(["é seven"])
        bench.sim.advance(100)
        assert (await bench.anthropic_results(batch.id))["i0"].type == expected
    assert [entry["attempt"] for entry in bench.sim.ledger()] == [1, 2, 3]
    assert bench.sim.violations() == []


async def test_item_probability_is_seeded(bench_of: Start) -> None:
    """About the asked share fails, and the same share each time."""
    faults = {"items": [{"probability": 0.3, "kind": "overloaded"}]}
    counts = []
    for _ in range(2):
        bench = bench_of(faults=faults, seed=5)
        batch = await bench.create_anthropic([f"text {n}" for n in range(200)])
        bench.sim.advance(100)
        counts.append((await bench.anthropic.messages.batches.retrieve(batch.id)).request_counts.errored)
    assert counts[0] == counts[1]
    assert 35 < counts[0] < 85


async def test_item_faults_in_the_sync_lane(bench_of: Start) -> None:
    """A failing kind becomes an HTTP error on the first call only."""
    bench = bench_of(faults={"items": [{"lane": "sync", "first_n_attempts": 1, "kind": "rate_limit"}]})
    body: Any = {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": "x"}]}
    with pytest.raises(anthropic.RateLimitError):
        await bench.anthropic.messages.create(**body)
    await bench.anthropic.messages.create(**body)
    assert [entry["outcome"] for entry in bench.sim.ledger()] == ["errored", "succeeded"]


async def test_stuck_and_endless_cancel(bench_of: Start) -> None:
    """A stuck batch passes its own deadline; one whose cancel never ends stays canceling."""
    bench = bench_of(faults={"batches": [{"nth": 1, "stuck": 0.5}, {"nth": 2, "cancel_never_ends": True}]})
    stuck = await bench.create_anthropic(["a", "b"])
    endless = await bench.create_anthropic(["c"])
    await bench.anthropic.messages.batches.cancel(endless.id)
    bench.sim.advance(3 * 86_400)
    assert (await bench.anthropic.messages.batches.retrieve(stuck.id)).processing_status == "in_progress"
    assert (await bench.anthropic.messages.batches.retrieve(endless.id)).processing_status == "canceling"
    await bench.anthropic.messages.batches.cancel(stuck.id)
    bench.sim.advance(2)
    counts = (await bench.anthropic.messages.batches.retrieve(stuck.id)).request_counts
    assert (counts.succeeded, counts.canceled) == (1, 1)


async def test_late_answers(bench_of: Start) -> None:
    """A batch may finish after its own deadline, and a cancel may take long and stop nothing."""
    late = {"ignore_deadline": True, "duration": 100_000}
    bench = bench_of(
        faults={"batches": [{"nth": 1} | late, {"nth": 2, "cancel_finishes": True, "cancel_seconds": 500}]}
    )
    slow = await bench.create_anthropic(["a", "b"])
    canceled = await bench.create_anthropic(["c", "d"])
    await bench.anthropic.messages.batches.cancel(canceled.id)
    bench.sim.advance(499)
    assert (await bench.anthropic.messages.batches.retrieve(canceled.id)).processing_status == "canceling"
    bench.sim.advance(90_000)
    assert (await bench.anthropic.messages.batches.retrieve(canceled.id)).request_counts.succeeded == 2
    assert (await bench.anthropic.messages.batches.retrieve(slow.id)).processing_status == "in_progress"
    bench.sim.advance(10_000)
    assert (await bench.anthropic.messages.batches.retrieve(slow.id)).request_counts.succeeded == 2


async def test_expiry_of_a_whole_batch(bench_of: Start) -> None:
    """A batch expires early with the asked share done, and what is left may be sent again."""
    bench = bench_of(faults={"batches": [{"api": "openai", "nth": 1, "expire": 0.1, "expire_after": 600}]})
    lines = [chat_line(f"i{n}", f"x {n}") for n in range(10)]
    batch = await bench.create_openai(lines)
    bench.sim.advance(601)
    shown = await bench.openai.batches.retrieve(batch.id)
    assert shown.status == "expired"
    assert len(await bench.openai_lines(shown.output_file_id)) == 1
    late = [line["custom_id"] for line in await bench.openai_lines(shown.error_file_id)]
    await bench.create_openai([line for line in lines if line["custom_id"] in late])
    assert bench.sim.violations() == []
    await bench.create_openai(lines)
    assert len(bench.sim.violations()) == 10


async def test_odd_batch_objects(bench_of: Start) -> None:
    """Unknown words, empty, missing and null file ids, no counts, and a foreign results host."""
    foreign = {"api": "anthropic", "results_host": "http://evil.example", "status": "paused"}
    odd = [
        {"nth": 1, "error_file_id": "", "counts": None},
        {"nth": 2, "error_file_id": "missing", "status": "thinking"},
        {"nth": 3, "output_file_id": "null"},
        {"nth": 4, "fail": "token_limit_exceeded"},
        {"nth": 5, "fail": [{"code": "model_mismatch", "line": 3}]},
    ]
    bench = bench_of(faults={"batches": [{"api": "openai"} | rule for rule in odd] + [foreign]})
    ids = [(await bench.create_openai([chat_line("a", f"x {n}")])).id for n in range(5)]
    theirs = await bench.create_anthropic(["a"])
    bench.sim.advance(10)
    assert str((await bench.openai.batches.retrieve(ids[1])).status) == "thinking"
    assert str((await bench.anthropic.messages.batches.retrieve(theirs.id)).processing_status) == "paused"
    bench.sim.advance(90)
    shown = [await bench.openai.batches.retrieve(one) for one in ids]
    assert (shown[0].error_file_id, shown[0].request_counts) == ("", None)
    assert "error_file_id" not in shown[1].model_fields_set
    assert (shown[2].status, shown[2].output_file_id) == ("completed", None)
    assert [batch.status for batch in shown[3:]] == ["failed", "failed"]
    assert "Limit: 90,000" in str(shown[3].errors)
    ended = await bench.anthropic.messages.batches.retrieve(theirs.id)
    assert (ended.results_url or "").startswith("http://evil.example/")


async def test_new_batches_may_be_invisible(bench_of: Start) -> None:
    """Lists lag by calls or seconds, and retrieve answers 404 for a while."""
    lag = {"list_lag_calls": 2, "retrieve_404_seconds": 5}
    bench = bench_of(faults={"batches": [lag], "files": [{"list_lag_seconds": 5}]})
    batch = await bench.create_openai([chat_line("a", "x")])
    assert [len((await bench.openai.batches.list()).data) for _ in range(3)] == [0, 0, 1]
    assert (await bench.openai.files.list()).data == []
    with pytest.raises(openai.NotFoundError):
        await bench.openai.batches.retrieve(batch.id)
    bench.sim.advance(6)
    assert len((await bench.openai.files.list()).data) == 1
    await bench.openai.batches.retrieve(batch.id)


async def test_odd_files(bench_of: Start) -> None:
    """A file may be pending, lack its status, and be unknown to the first creates."""
    effects = {"not_found_creates": 1, "pending_retrieves": 1, "ignore_expiry": True}
    bench = bench_of(faults={"files": [{"nth": 1} | effects, {"nth": 2, "no_status": True}]})
    with pytest.raises(openai.BadRequestError) as caught:
        await bench.create_openai([chat_line("a", "x")])
    assert caught.value.param == "file_id"
    (stored,) = (await bench.openai.files.list()).data
    assert stored.expires_at is None
    assert [(await bench.openai.files.retrieve(stored.id)).status for _ in range(2)] == ["pending", "processed"]
    await bench.openai.batches.create(input_file_id=stored.id, endpoint="/v1/chat/completions", completion_window="24h")
    second = await bench.openai.files.create(file=("b.jsonl", b"{}"), purpose="batch")
    assert "status" not in second.model_fields_set
