"""The sync lane as a user meets it: answers, files, exit codes, both lanes on one run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchctl.simulator.answers import answer
from tests.fanout.desks import AT_ONCE, MakeDesk, calls, fanout, fault, paid

PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])


@PROVIDERS
def test_one_item_meets_429_once(make_desk: MakeDesk, provider: str) -> None:
    """20 items, 20 results each with its own answer; the refused one was called twice and no other."""
    desk = make_desk(provider)
    fault(desk, action="status", status=429, contains='text of item 7"', times=1, headers=AT_ONCE)
    fanout(desk, desk.items(20))
    assert desk.balanced()["counts"] == {"planned": 20, "succeeded": 20, "failed": 0, "open": 0}
    assert calls(desk) == 21
    for line in desk.lines("results.jsonl"):
        assert line["text"] == answer(f"Answer this: text of item {line['id'][1:]}")
        assert (line["lane"], line["batch_id"]) == ("sync", None)
    assert set(paid(desk).values()) == {1}


@PROVIDERS
def test_the_same_command_again_sends_nothing(make_desk: MakeDesk, provider: str) -> None:
    """What is done is done."""
    desk = make_desk(provider)
    items = desk.items(5)
    fanout(desk, items)
    fanout(desk, items)
    assert calls(desk) == 5
    assert desk.balanced()["state"] == "done"


def test_another_input_under_the_name_is_refused(make_desk: MakeDesk) -> None:
    """The name belongs to what it was made from (field report 174)."""
    desk = make_desk()
    fanout(desk, desk.items(5))
    assert "different" in fanout(desk, desk.items(6), code=2).err
    assert calls(desk) == 5


def test_bad_input_is_refused_before_anything_is_sent(make_desk: MakeDesk) -> None:
    """A file is read whole first: two records of one id, and nothing goes out."""
    desk = make_desk()
    ran = fanout(desk, desk.items([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]), code=2)
    assert "lines 1 and 2" in ran.err
    assert calls(desk) == 0


def test_a_permanent_error_costs_one_call_and_one_item(make_desk: MakeDesk) -> None:
    """400 for one item is not repeated and does not touch the others (field report 149)."""
    desk = make_desk()
    fault(desk, action="status", status=400, contains='text of item 3"')
    fanout(desk, desk.items(9), code=3)
    assert desk.balanced()["counts"] == {"planned": 9, "succeeded": 8, "failed": 1, "open": 0}
    assert calls(desk) == 9
    (line,) = desk.lines("errors.jsonl")
    assert (line["id"], line["attempts"], line["outcome"]) == ("i3", 1, "errored")


def test_attempts_are_counted_and_nothing_multiplies_them(make_desk: MakeDesk) -> None:
    """An item that always meets 429 is called exactly --max-attempts times (field report 144)."""
    desk = make_desk()
    fault(desk, action="status", status=429, headers=AT_ONCE)
    fanout(desk, desk.items(1), "--max-attempts", "2", code=3)
    assert calls(desk) == 2
    (line,) = desk.lines("errors.jsonl")
    assert line["attempts"] == 2
    assert line["error"]["type"] == "rate_limit_error"
    assert [row["attempts"] for row in desk("items", "r", "--json").rows] == [2]


def test_a_reply_that_fails_the_schema_is_invalid(make_desk: MakeDesk) -> None:
    """The reply check is the same as in the batch lane, and an invalid reply is not asked for again."""
    desk = make_desk()
    schema = desk.folder / "schema.json"
    schema.write_text('{"type": "object"}', "utf-8")
    fanout(desk, desk.items(2), "--schema", str(schema), code=3)
    assert {line["outcome"] for line in desk.lines("errors.jsonl")} == {"invalid"}
    assert calls(desk) == 2


@PROVIDERS
def test_a_batch_run_is_finished_one_by_one(make_desk: MakeDesk, provider: str) -> None:
    """What waits is withdrawn and sent; what a live batch may still answer is left alone, and its answers come."""
    desk = make_desk(provider)
    desk.start("submit", desk.items(10), "--max-requests", "4", "--max-queued-requests", "4")
    assert desk.creates() == 1
    ran = desk("fanout", "--run", "r", "--rpm", "6000", code=4)
    assert "4 of 10" in ran.err
    assert calls(desk) == 6
    assert desk.balanced()["counts"] == {"planned": 10, "succeeded": 6, "failed": 0, "open": 4}
    desk.simulator.advance(3600)
    desk("poll")
    status = desk.balanced()
    assert (status["state"], status["counts"]["succeeded"]) == ("done", 10)
    assert desk.creates() == 1
    desk("fanout", "--run", "r")
    assert calls(desk) == 6


def test_a_fanout_run_is_finished_in_batches(make_desk: MakeDesk) -> None:
    """What a stopped fan-out left open goes into a batch like any other item."""
    desk = make_desk()
    fault(desk, action="error", name="low_credit", from_nth=4)
    fanout(desk, desk.items(10), "--concurrency", "1", code=6)
    status = desk.balanced()
    assert (status["state"], status["counts"]["succeeded"], status["counts"]["failed"]) == ("stopped", 3, 0)
    desk.simulator.set_faults({})
    desk("resubmit", "r")
    desk.simulator.advance(3600)
    desk("poll")
    status = desk.balanced()
    assert (status["state"], status["counts"]["succeeded"]) == ("done", 10)
    lanes = [line["lane"] for line in desk.lines("results.jsonl")]
    assert (lanes.count("sync"), lanes.count("batch")) == (3, 7)


def test_usage_is_refused_by_name(make_desk: MakeDesk) -> None:
    """Items and --run exclude each other; a run that does not exist is said."""
    desk = make_desk()
    assert "--run" in desk("fanout", code=2).err
    fanout(desk, desk.items(1))
    assert "no run" in desk("fanout", "--run", "other", code=2).err
    assert "provider" in desk("fanout", desk.items(1), "--model", "m", code=2).err


@PROVIDERS
def test_finished_requests_go_to_their_own_endpoints(make_desk: MakeDesk, provider: str) -> None:
    """Requests in a batch-file shape are sent as they are, each where it says."""
    desk = make_desk(provider)
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": "a"}]}
    bodies: dict[str, dict[str, Any]]
    if provider == "anthropic":
        bodies = {"/v1/messages": chat | {"max_tokens": 9}}
    else:
        bodies = {"/v1/chat/completions": chat, "/v1/responses": {"input": "b"}, "/v1/embeddings": {"input": "c"}}
    model = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-5-mini"}[provider]
    lines = [
        {"custom_id": f"i{n}", "params": body | {"model": model}}
        if provider == "anthropic"
        else {"custom_id": f"i{n}", "method": "POST", "url": url, "body": body | {"model": model}}
        for n, (url, body) in enumerate(bodies.items())
    ]
    path = desk.folder / "requests.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    out = str(desk.folder / "out")
    desk("fanout", str(path), "--provider", provider, "--requests", "--name", "r", "--out", out)
    assert desk.balanced()["counts"]["succeeded"] == len(bodies)
    called = desk.simulator.stats()["calls"]
    assert sum(called.values()) == len(bodies)
    assert len(called) == len(bodies)
    refused = desk("fanout", "--run", "r", "--max-cost", "5", code=2)
    assert "--max-cost cannot be kept" in refused.err
