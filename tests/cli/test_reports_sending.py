"""Field reports of sending and waiting that no other test holds: the right behaviour of each, by command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.passes import LATER, counted, pass_until_quiet, settle
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
DOWNLOAD = {"anthropic": "anthropic.batches.results", "openai": "openai.files.content"}


def failed_looks(number: int) -> str:
    """How so many failed looks in a row are told."""
    return "a look failed" if number == 1 else f"{number} looks in a row failed"


# Upload and create


def test_a_file_that_is_not_there_yet_is_used_again(make_desk: MakeDesk) -> None:
    """Field reports 47, 49: creates that do not know the file wait and use it again; there is one upload."""
    desk = make_desk("openai", {"files": [{"not_found_creates": 3}]}, speed=36_000)
    desk.start("run", desk.items(3))
    calls = desk.simulator.stats()["calls"]
    assert (calls["openai.files.upload"], calls["openai.batches.create"]) == (1, 4)
    assert desk.balanced()["counts"] == counted(3, 3, 0)
    assert {line["round"] for line in desk.lines("results.jsonl")} == {0}


@pytest.mark.parametrize("odd", [{"pending_retrieves": 2}, {"no_status": True}, {"ignore_expiry": True}])
def test_a_file_needs_no_status(make_desk: MakeDesk, odd: dict[str, Any]) -> None:
    """Field report 51: uploads that stay pending, or tell no status at all, are used all the same."""
    desk = make_desk("openai", {"files": [odd]})
    assert settle(desk, desk.items(2))["counts"] == counted(2, 2, 0)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [{"when": "before"}, {"when": "after"}, {"after_bytes": 100}])
def test_an_upload_that_breaks_is_made_anew(make_desk: MakeDesk, fault: dict[str, Any]) -> None:
    """Field reports 53, 54: earlier batches are kept, the broken upload is settled, nothing is created twice."""
    broken = {"endpoint": "openai.files.upload", "action": "drop", "nth": [2, 3], **fault}
    desk = make_desk("openai", {"calls": [broken]}, speed=36_000)
    desk.start("submit", desk.items(6), "--max-requests", "2")
    assert [row["state"] for row in desk("batches", "r", "--json").rows] == ["in_progress", "submitting", "waiting"]
    desk("poll", "--wait", "--resubmit")
    assert desk.creates() == 3
    assert desk.balanced()["counts"] == counted(6, 6, 0)


@pytest.mark.parametrize("code", ["storage_quota_exceeded", "quotaExceeded"])
def test_no_room_for_files_stops_sending_and_not_collecting(make_desk: MakeDesk, code: str) -> None:
    """Field reports 60, 61: what is at the provider comes home while uploads are refused; files of it are deleted."""
    full = {"endpoint": "openai.files.upload", "nth": 2, "action": "status", "status": 400, "code": code}
    desk = make_desk("openai", {"calls": [full]})
    desk.start("submit", desk.items(4), "--max-requests", "2", "--interval", "60s")
    assert desk.creates() == 1
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"] == counted(4, 2, 0)
    assert desk.simulator.stats()["calls"]["openai.files.delete"] == 1
    assert desk.creates() == 1


# Limits and billing


@PROVIDERS
def test_a_create_told_to_wait_spends_nothing(make_desk: MakeDesk, provider: str) -> None:
    """Field report 67: a 429 at create holds the batch as long as it says; items lose no round."""
    slow = {"action": "status", "status": 429, "headers": {"retry-after": "3600"}, "times": 1}
    desk = make_desk(provider, {"calls": [{"endpoint": f"{provider}.batches.create", **slow}]})
    ran = desk.start("submit", desk.items(4))
    assert "next try in 3600 s" in ran.err
    desk("poll", "--resubmit")
    assert desk.creates() == 1
    assert desk.balanced()["batches"]["waiting"] == 1


@PROVIDERS
def test_requests_in_the_queue_have_a_cap(make_desk: MakeDesk, provider: str) -> None:
    """Field report 69: the last batch goes in when there is room, and not before."""
    desk = make_desk(provider)
    endpoint = ("--endpoint", "/v1/embeddings") if provider == "openai" else ()
    desk.start("submit", desk.items(6), "--max-requests", "2", "--max-queued-requests", "4", *endpoint)
    desk("poll", "--resubmit")
    assert desk.creates() == 2
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.creates() == 3
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"] == counted(6, 6, 0)


@PROVIDERS
@pytest.mark.parametrize("headers", [{}, {"retry-after": "1"}])
def test_an_empty_account_stops_the_run(make_desk: MakeDesk, provider: str, headers: dict[str, str]) -> None:
    """Field report 73: 402 stops the run, with or without Retry-After; no item fails, nothing more is tried."""
    first = "anthropic.batches.create" if provider == "anthropic" else "openai.files.upload"
    empty = {"endpoint": first, "action": "status", "status": 402, "headers": headers}
    desk = make_desk(provider, {"calls": [empty]})
    items = desk.items(4)
    desk.start("submit", items, "--max-requests", "1", code=6)
    desk("poll", "--resubmit")
    assert desk.simulator.stats()["calls"] == {first: 1} | (
        {} if provider == "openai" else {f"{provider}.batches.list": 1}
    )
    assert desk.balanced()["counts"] == counted(4, 0, 0)
    desk.simulator.set_faults({})
    assert settle(desk, items, "--max-requests", "1")["counts"] == counted(4, 4, 0)


# Waiting


@PROVIDERS
def test_a_batch_that_is_not_found_for_a_while_is_waited_for(make_desk: MakeDesk, provider: str) -> None:
    """Field report 74: 404 for an id we created is no reason to send anything again."""
    desk = make_desk(provider, {"batches": [{"retrieve_404_calls": 2}]})
    desk.start("submit", desk.items(3))
    desk.simulator.advance(LATER)
    for number in (1, 2):
        assert failed_looks(number) in desk("poll", "--resubmit").err
        assert desk.status()["counts"]["open"] == 3
    desk("poll", "--resubmit")
    assert desk.creates() == 1
    assert desk.balanced()["counts"] == counted(3, 3, 0)


@PROVIDERS
def test_an_outage_does_not_end_the_wait(make_desk: MakeDesk, provider: str) -> None:
    """Field report 76: pages, cut connections and 503s are counted and shown with the batch's id."""
    look = f"{provider}.batches.retrieve"
    faults = [
        {"endpoint": look, "nth": 1, "action": "html", "status": 502},
        {"endpoint": look, "nth": 2, "action": "status", "status": 503},
        {"endpoint": look, "nth": [3, 4], "action": "drop"},  # the transport asks once more by itself
    ]
    desk = make_desk(provider, {"calls": faults})
    desk.start("submit", desk.items(2))
    [batch] = desk("batches", "r", "--json").rows
    desk.simulator.advance(LATER)
    for number in (1, 2, 3):
        said = desk("poll", "--resubmit").err
        assert failed_looks(number) in said
        assert batch["batch_id"] in said
    desk("poll", "--resubmit")
    assert desk.creates() == 1
    assert desk.balanced()["counts"] == counted(2, 2, 0)


@PROVIDERS
def test_a_refused_key_ends_the_wait(make_desk: MakeDesk, provider: str) -> None:
    """Field report 78: 401 on every look stops at once with the reason; the batch stays recorded and comes home."""
    desk = make_desk(
        provider, {"calls": [{"endpoint": f"{provider}.batches.retrieve", "action": "status", "status": 401}]}
    )
    desk.start("submit", desk.items(2))
    assert "401" in desk("poll", "--wait", code=6).err
    assert desk.simulator.stats()["calls"][f"{provider}.batches.retrieve"] == 1
    assert desk.status()["batches"]["in_progress"] == 1
    desk.simulator.set_faults({})
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["state"] == "done"


def test_finalizing_is_shown_and_is_not_done(make_desk: MakeDesk) -> None:
    """Field reports 80, 81: the provider's word stands beside the counts, the same in every later command."""
    desk = make_desk("openai", finalizing_seconds=1000.0)
    desk.start("submit", desk.items(2))
    desk.simulator.advance(100)
    assert "finalizing" in desk("poll").err
    for _ in range(2):
        [batch] = desk("batches", "r", "--json").rows
        assert (batch["state"], batch["provider_status"]) == ("in_progress", "finalizing")
        assert desk.balanced()["counts"] == counted(2, 0, 0)
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk("batches", "r", "--json").rows[0]["provider_status"] == "completed"
    assert desk.balanced()["state"] == "done"


@PROVIDERS
def test_an_unknown_word_is_shown_and_bounded(make_desk: MakeDesk, provider: str) -> None:
    """Field report 85: a status nobody knows is no end, and the deadline bounds it."""
    desk = make_desk(provider, {"batches": [{"nth": 1, "status": "pondering", "stuck": 0.5}]})
    desk.start("submit", desk.items(4), "--deadline", "2h")
    desk.simulator.advance(600)
    desk("poll")
    assert desk("batches", "r", "--json").rows[0]["provider_status"] == "pondering"
    pass_until_quiet(desk)
    assert desk.balanced()["counts"] == counted(4, 4, 0)
    assert [batch["requests"] for batch in desk("batches", "r", "--json").rows] == [4, 2]


@PROVIDERS
def test_a_wait_that_ran_out_says_how_to_go_on(make_desk: MakeDesk, provider: str) -> None:
    """Field report 86: the message names the run, the batch's id and the command that goes on."""
    desk = make_desk(provider)
    desk.start("submit", desk.items(2))
    [batch] = desk("batches", "r", "--json").rows
    said = desk("poll", "--wait", "--wait-limit", "0.01s", code=4).err
    for words in ("run r", batch["batch_id"], " poll --wait r"):
        assert words in said


@PROVIDERS
def test_every_kind_of_end_is_counted(make_desk: MakeDesk, provider: str) -> None:
    """Field reports 89, 115: outcomes of all kinds add up to what was planned, in status, summary and files."""
    kinds = ("missing", "api_error", "invalid_request", "context_too_long")
    items = [{"custom_id": f"i{number}", "kind": kind} for number, kind in enumerate(kinds, start=1)]
    desk = make_desk(provider, {"items": items})
    status = settle(desk, desk.items(8), "--max-resubmits", "0", passes=3)
    assert status["counts"] == counted(8, 4, 4)
    assert status["outcomes"] == {"succeeded": 4, "errored": 3, "missing": 1}
    assert sum(row["count"] for row in desk("errors", "r", "--summary", "--json").rows) == 4


@PROVIDERS
def test_progress_is_counted_from_items(make_desk: MakeDesk, provider: str) -> None:
    """Field report 90: 7 of 10 done and 3 sent again are 7 of 10, in 2 batches, in round 1."""
    desk = make_desk(provider, {"items": [{"custom_id": "i[1-3]", "first_n_attempts": 1, "kind": "overloaded"}]})
    desk.start("submit", desk.items(10))
    pass_until_quiet(desk, passes=1)
    assert desk.balanced()["counts"] == counted(10, 7, 0)
    assert [(row["round"], row["requests"]) for row in desk("batches", "r", "--json").rows] == [(0, 10), (1, 3)]
    pass_until_quiet(desk, passes=1)
    assert sorted(line["round"] for line in desk.lines("results.jsonl")) == [0] * 7 + [1] * 3
