"""The batch lane as a user meets it: commands, files, exit codes, against the simulator on both providers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from batchctl.simulator.answers import answer
from tests.cli.passes import LATER, pass_until_quiet
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])


@PROVIDERS
def test_each_answer_belongs_to_its_item(make_desk: MakeDesk, provider: str) -> None:
    """Results come out of order and one item errors: every answer is on its own item, one item goes again."""
    faults = {"items": [{"custom_id": "i7", "first_n_attempts": 1, "kind": "api_error"}]}
    desk = make_desk(provider, faults)
    desk.start("submit", desk.items(20))
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"] == {"planned": 20, "succeeded": 19, "failed": 0, "open": 1}
    desk("resubmit")
    assert [batch["requests"] for batch in desk("batches", "r", "--json").rows] == [20, 1]
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"] == {"planned": 20, "succeeded": 20, "failed": 0, "open": 0}
    for line in desk.lines("results.jsonl"):
        assert line["text"] == answer(f"Answer this: text of item {line['id'][1:]}")


@PROVIDERS
def test_a_restarted_process_submits_nothing_twice(make_desk: MakeDesk, provider: str) -> None:
    """The same command again polls the batches that exist (field reports 53, 87)."""
    desk = make_desk(provider)
    items = desk.items(10)
    first = desk.start("submit", items, "--max-requests", "4")
    again = desk.start("submit", items, "--max-requests", "4")
    assert first.out == again.out
    assert desk.creates() == 3
    desk.simulator.advance(LATER)
    desk("poll")
    desk("poll")
    assert desk.creates() == 3
    assert desk.balanced()["state"] == "done"


@PROVIDERS
def test_strange_ids_survive(make_desk: MakeDesk, provider: str) -> None:
    """Ids are opaque strings end to end (field reports 12, 24, 25)."""
    long = "x" * 79
    ids = ["007", "7", "a/b", "a.b", "a_b", "a b", long + "1", long + "2", "🙂", "café", "bctl-00000000-3", "bctl-1"]
    desk = make_desk(provider)
    desk.start("submit", desk.items([{"id": item, "text": f"of {item}"} for item in ids]))
    desk.simulator.advance(LATER)
    desk("poll")
    texts = {line["id"]: line["text"] for line in desk.lines("results.jsonl")}
    assert texts == {item: answer(f"Answer this: of {item}") for item in ids}


@PROVIDERS
def test_split_by_bytes(make_desk: MakeDesk, provider: str) -> None:
    """Ten items of 300 kB under a limit of 1 MB make four batches, none above it (field report 29)."""
    desk = make_desk(provider)
    items = desk.items([{"id": f"i{number}", "text": "é" * 150_000} for number in range(10)])
    desk.start("submit", items, "--max-bytes", "1MB")
    batches = desk("batches", "r", "--json").rows
    assert [batch["requests"] for batch in batches] == [3, 3, 3, 1]
    assert all(batch["bytes"] <= 1_000_000 for batch in batches)


@PROVIDERS
def test_line_separators_in_answers(make_desk: MakeDesk, provider: str) -> None:
    """U+2028 and relatives in an answer are one answer, kept as they were (field reports 111, 113)."""
    desk = make_desk(provider, {"items": [{"kind": "line_separators"}]})
    desk.start("submit", desk.items(3))
    desk.simulator.advance(LATER)
    desk("poll")
    lines = desk.lines("results.jsonl")
    assert len(lines) == 3
    assert all("\u2028" in line["text"] for line in lines)
    raw = (desk.folder / "out" / "results.jsonl").read_bytes()
    assert not any(mark.encode() in raw for mark in "\u2028\u2029\u0085")


@PROVIDERS
def test_a_retryable_error_is_repeated_twice_and_no_more(make_desk: MakeDesk, provider: str) -> None:
    """First sending and two resubmissions, then errors.jsonl and exit 3 (field report 120)."""
    desk = make_desk(provider, {"items": [{"custom_id": "i2", "kind": "api_error"}]}, speed=36_000)
    desk.start("run", desk.items(3), code=3)
    [error] = desk.lines("errors.jsonl")
    assert (error["id"], error["outcome"], error["attempts"], error["round"]) == ("i2", "errored", 3, 2)
    assert desk.creates() == 3
    assert desk.balanced()["state"] == "done"


@PROVIDERS
def test_a_permanent_error_is_not_repeated(make_desk: MakeDesk, provider: str) -> None:
    """A request that cannot succeed is sent once (field reports 42, 149)."""
    desk = make_desk(provider, {"items": [{"custom_id": "i2", "kind": "invalid_request"}]}, speed=36_000)
    desk.start("run", desk.items(3), code=3)
    [error] = desk.lines("errors.jsonl")
    assert (error["id"], error["attempts"]) == ("i2", 1)
    assert desk.creates() == 1


@PROVIDERS
def test_expired_items_go_again_and_finished_ones_do_not(make_desk: MakeDesk, provider: str) -> None:
    """An expired batch keeps what it finished; only the rest is bought again (field reports 84, 96, 97)."""
    desk = make_desk(provider, {"batches": [{"nth": 1, "expire": 0.4}]})
    desk.start("submit", desk.items(10))
    desk.simulator.advance(25 * LATER)
    desk("poll")
    counts = desk.balanced()["counts"]
    assert (counts["succeeded"], counts["open"]) == (4, 6)
    desk("resubmit")
    assert [batch["requests"] for batch in desk("batches", "r", "--json").rows] == [10, 6]
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 10


@PROVIDERS
def test_a_batch_past_its_deadline_is_canceled_and_its_rest_goes_again(make_desk: MakeDesk, provider: str) -> None:
    """A stuck batch counts as expired after the deadline; what it finished is kept (field report 82)."""
    desk = make_desk(provider, {"batches": [{"nth": 1, "stuck": 0.5}]})
    desk.start("submit", desk.items(10), "--deadline", "2h")
    desk.simulator.advance(3 * LATER)
    desk("poll")
    assert desk("batches", "r", "--json").rows[0]["state"] == "canceling"
    pass_until_quiet(desk)
    status = desk.balanced()
    assert status["counts"]["succeeded"] == 10
    assert [batch["requests"] for batch in desk("batches", "r", "--json").rows] == [10, 5]


@PROVIDERS
def test_missing_lines_become_missing_items(make_desk: MakeDesk, provider: str) -> None:
    """A request in no result file is looked for again, then sent again (field reports 99, 107)."""
    desk = make_desk(provider, {"items": [{"custom_id": "i3", "first_n_attempts": 1, "kind": "missing"}]})
    desk.start("submit", desk.items(5))
    pass_until_quiet(desk)
    status = desk.balanced()
    assert status["counts"]["succeeded"] == 5
    assert status["attempts"]["missing"] == 1


def test_queue_limit_spends_no_round(make_desk: MakeDesk) -> None:
    """A batch that found no room waits and goes again; items lose nothing (field reports 64, 65)."""
    faults = {"batches": [{"api": "openai", "nth": 2, "fail": "token_limit_exceeded"}]}
    desk = make_desk("openai", faults, speed=36_000)
    desk.start("run", desk.items(6), "--max-requests", "2", "--max-resubmits", "0")
    assert desk.balanced()["counts"]["succeeded"] == 6
    assert {line["round"] for line in desk.lines("results.jsonl")} == {0}


@PROVIDERS
def test_window_of_batches_under_a_token_limit(make_desk: MakeDesk, provider: str) -> None:
    """Waiting batches go in as others end, never more at once than the limit."""
    desk = make_desk(provider)
    desk.start("submit", desk.items(8), "--max-requests", "2", "--max-queued-requests", "4")
    assert desk.status()["batches"] == {"waiting": 2, "in_progress": 2, "ended": 0, "unknown": 0}
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.status()["batches"] == {"waiting": 0, "in_progress": 2, "ended": 2, "unknown": 0}
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["state"] == "done"


def test_refused_lines_fail_and_the_others_go_again(make_desk: MakeDesk) -> None:
    """A late refusal names line 3: that item fails, the others are sent once more, no round spent (field report 37)."""
    faults = {
        "batches": [
            {
                "nth": 1,
                "fail": [{"code": "missing_required_parameter", "line": 3, "message": "no", "param": "body.messages"}],
            }
        ]
    }
    desk = make_desk("openai", faults)
    desk.start("submit", desk.items(5))
    pass_until_quiet(desk, passes=3)
    assert [line["id"] for line in desk.lines("errors.jsonl")] == ["i3"]
    assert desk.balanced()["counts"] == {"planned": 5, "succeeded": 4, "failed": 1, "open": 0}


@PROVIDERS
def test_too_large_halves_the_batch(make_desk: MakeDesk, provider: str) -> None:
    """A 413 that states no limit halves the batch and goes on (field report 34)."""
    desk = make_desk(provider, **{f"{provider}_max_requests": 3})
    desk.start("submit", desk.items(10))
    pass_until_quiet(desk, passes=4)
    assert desk.balanced()["counts"]["succeeded"] == 10
    assert all(batch["requests"] <= 3 for batch in desk("batches", "r", "--json").rows if batch["batch_id"])
