"""The batch lane as a user meets it: commands, files, exit codes, against the simulator on both providers."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from batchctl.simulator.answers import answer
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
LATER = 3600.0  # simulated seconds after which every batch has ended


def pass_until_quiet(desk: Desk, *, passes: int = 6) -> None:
    """Polls with resubmission, the clock moved on between."""
    for _ in range(passes):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit")


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
    assert status["outcomes"]["missing"] == 1


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


@PROVIDERS
@pytest.mark.parametrize("status", [401, 403])
def test_systemic_errors_stop_the_run_and_it_goes_on_afterwards(
    make_desk: MakeDesk, provider: str, status: int
) -> None:
    """Exit 6, items stay open, and the same command goes on (field reports 70, 78)."""
    endpoint = "anthropic.batches.create" if provider == "anthropic" else "openai.files.upload"
    faults = {"calls": [{"endpoint": endpoint, "action": "status", "status": status, "times": 1}]}
    desk = make_desk(provider, faults)
    items = desk.items(4)
    refused = desk.start("submit", items, code=6)
    assert "hint:" in refused.err
    assert desk.status()["state"] == "stopped"
    assert desk.status()["counts"]["open"] == 4
    desk.start("submit", items)
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 4


@PROVIDERS
def test_low_credit_in_results_keeps_the_good_half(make_desk: MakeDesk, provider: str) -> None:
    """Account-level errors inside results stop the run and spend nothing (field report 71)."""
    kind = "low_credit"
    faults = {"items": [{"custom_id": "i[1-5]", "first_n_attempts": 1, "kind": kind}]}
    desk = make_desk(provider, faults)
    items = desk.items(10)
    desk.start("submit", items)
    desk.simulator.advance(LATER)
    desk("poll", code=6)
    assert desk.status()["state"] == "stopped"
    assert desk.balanced()["counts"] == {"planned": 10, "succeeded": 5, "failed": 0, "open": 5}
    desk.start("submit", items)
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 10
    assert {line["round"] for line in desk.lines("results.jsonl")} == {0}


@PROVIDERS
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_create_is_settled_from_the_lists(make_desk: MakeDesk, provider: str, when: str) -> None:
    """The answer to a create is lost: exactly one batch exists afterwards (field reports 56, 58)."""
    faults = {"calls": [{"endpoint": f"{provider}.batches.create", "action": "drop", "when": when, "times": 1}]}
    desk = make_desk(provider, faults, speed=36_000)
    desk.start("run", desk.items(6), "--max-requests", "3")
    assert desk.balanced()["counts"]["succeeded"] == 6
    assert len(desk("batches", "r", "--json").rows) == 2


@PROVIDERS
def test_cancel_keeps_what_was_finished(make_desk: MakeDesk, provider: str) -> None:
    """`cancel` stops the batches; every item is accounted for."""
    desk = make_desk(provider, {"batches": [{"stuck": 0.5}]})
    desk.start("submit", desk.items(10))
    desk.simulator.advance(LATER)
    desk("cancel", "r")
    for _ in range(4):
        desk.simulator.advance(LATER)
        desk("poll", "r")
    status = desk.balanced()
    assert status["state"] == "canceled"
    assert status["counts"]["open"] == 0
    assert {line["outcome"] for line in desk.lines("errors.jsonl")} == {"canceled"}


@PROVIDERS
def test_odd_answers_are_kept_with_their_reason(make_desk: MakeDesk, provider: str) -> None:
    """Refused, cut and empty answers are results with a stop reason, not errors and not crashes (116, 118)."""
    faults = {
        "items": [
            {"custom_id": "i1", "kind": "refusal"},
            {"custom_id": "i2", "kind": "truncated"},
            {"custom_id": "i3", "kind": "null_content"},
        ]
    }
    desk = make_desk(provider, faults)
    desk.start("submit", desk.items(4))
    desk.simulator.advance(LATER)
    desk("poll")
    lines = {line["id"]: line for line in desk.lines("results.jsonl")}
    assert set(lines) == {"i1", "i2", "i3", "i4"}
    assert lines["i2"]["stop_reason"] in ("max_tokens", "length")


def test_manifest_matches_the_files(make_desk: MakeDesk) -> None:
    """The manifest counts and describes, and holds no payload."""
    desk = make_desk(speed=36_000)
    desk.start("run", desk.items(5))
    manifest = json.loads((desk.folder / "out" / "manifest.json").read_text("utf-8"))
    assert manifest["counts"] == {"planned": 5, "succeeded": 5, "failed": 0, "open": 0}
    assert manifest["files"]["results"]["lines"] == 5
    assert "text of item" not in json.dumps(manifest)


@PROVIDERS
def test_a_cost_cap_lets_in_only_what_it_can_pay(make_desk: MakeDesk, provider: str) -> None:
    """Batches go in as far as the cap holds at the longest answers; a cap below one batch stops with exit 6."""
    desk = make_desk(provider)
    items = desk.items(6)
    arguments = ("--max-requests", "2", "--max-tokens", "1000")
    refused = desk.start("submit", items, *arguments, "--max-cost", "0.00001", code=6)
    assert "--max-cost" in refused.err
    assert desk.creates() == 0
    desk.start("submit", items, *arguments, "--max-cost", "100")
    assert desk.creates() == 3


@PROVIDERS
def test_a_stopped_run_sends_nothing_until_it_is_asked_to(make_desk: MakeDesk, provider: str) -> None:
    """Polls from cron do not try a bad account again and again (field report 70)."""
    endpoint = "anthropic.batches.create" if provider == "anthropic" else "openai.files.upload"
    desk = make_desk(provider, {"calls": [{"endpoint": endpoint, "action": "status", "status": 403, "times": 1}]})
    desk.start("submit", desk.items(4), code=6)
    desk("poll", "--resubmit")
    desk("poll", "--wait", code=4)
    assert desk.simulator.stats()["accepted"].get("batch", 0) == 0
    desk("resubmit", "r")
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["state"] == "done"


def test_a_canceled_run_cancels_a_lost_create_too(make_desk: MakeDesk) -> None:
    """A create in doubt when the run is canceled is settled, then canceled."""
    faults = {"calls": [{"endpoint": "openai.batches.create", "action": "drop", "when": "after", "times": 1}]}
    desk = make_desk("openai", faults)
    desk.start("submit", desk.items(3))
    desk("cancel", "r")
    for _ in range(4):
        desk.simulator.advance(LATER)
        desk("poll", "r")
    assert desk.status()["state"] == "canceled"
    assert desk.balanced()["counts"]["open"] == 0


@PROVIDERS
def test_tagged_ids_name_their_batch_in_every_round(make_desk: MakeDesk, provider: str) -> None:
    """With --tag-ids a resubmission's custom ids name the new batch, and answers still find their items."""
    desk = make_desk(provider, {"items": [{"prompt_contains": "item 4", "first_n_attempts": 1, "kind": "api_error"}]})
    desk.start("submit", desk.items(6), "--tag-ids", "--max-requests", "3")
    pass_until_quiet(desk, passes=3)
    assert desk.balanced()["counts"]["succeeded"] == 6
    tags = [entry["custom_id"].split("-")[2] for entry in desk.simulator.ledger()]
    assert sorted(tags) == ["1", "1", "1", "2", "2", "2", "3"]
