"""No room at the provider: full queues and storages, batches that are too large or stand still, files left behind."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.passes import LATER, events, pass_until_quiet, poll_at
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
UPLOAD = "openai.files.upload"
SOON = ("--interval", "0.001s")  # pauses shrink with the interval


def refusing(provider: str, times: int | None = None, **answer: Any) -> dict[str, Any]:
    """A fault by which creates are refused."""
    rule = {"endpoint": f"{provider}.batches.create", "action": "status", **answer}
    return {"calls": [rule if times is None else {**rule, "times": times}]}


@pytest.mark.slow
@PROVIDERS
def test_a_batch_that_stands_still_is_said_once_in_a_while(make_desk: MakeDesk, provider: str) -> None:
    """Field report 21: no change for six hours is one warning, and again only six hours later; nothing is sent."""
    desk = make_desk(provider, {"batches": [{"nth": 1, "stuck": 0.5, "ignore_deadline": True}]})
    desk.start("submit", desk.items(4))
    desk.simulator.advance(60)
    for hours in (0.1, 3.0, 5.9, 6.2, 6.5, 11.0, 12.5, 13.0):
        poll_at(desk, hours)
    said = events(desk, "batch.stalled")
    assert len(said) == 2
    assert "in_progress" in said[0]["text"]
    assert desk.creates() == 1
    desk.simulator.advance(200_000)
    pass_until_quiet(desk, passes=6)
    assert desk.balanced()["counts"]["succeeded"] == 4


@pytest.mark.parametrize("code", ["storage_quota_exceeded", "quotaExceeded"])
def test_a_full_storage_is_said_until_there_is_room(make_desk: MakeDesk, code: str) -> None:
    """Field reports 60, 61: `needs` names it with the way out, few uploads are tried, and the run goes on by itself."""
    desk = make_desk("openai", {"calls": [{"endpoint": UPLOAD, "action": "status", "status": 400, "code": code}]})
    desk.start("submit", desk.items(2), "--interval", "60s")
    for _ in range(3):
        desk("poll", "--resubmit")
    needs = desk.status()["needs"]
    assert "storage is full" in needs
    assert "doctor --repair r" in needs
    assert desk.simulator.stats()["calls"][UPLOAD] == 1
    desk.simulator.set_faults({})
    poll_at(desk, 0.5)
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.status()["needs"] is None


def test_input_files_are_asked_to_expire(make_desk: MakeDesk) -> None:
    """Field report 62: an answer without one is said; the file is deleted after use all the same."""
    desk = make_desk("openai", {"files": [{"nth": 2, "ignore_expiry": True}]})
    desk.start("submit", desk.items(4), "--max-requests", "2")
    [said] = events(desk, "batch.warning")
    assert "no expiry" in said["text"]
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 4
    assert desk.simulator.stats()["calls"]["openai.files.delete"] == 2


def test_a_server_that_knows_no_expiry_gets_the_file_without(make_desk: MakeDesk) -> None:
    """Field report 62: a refusal of the parameter costs one upload, not the run."""
    message = "Unrecognized request argument supplied: expires_after"
    fault = {"endpoint": UPLOAD, "action": "status", "status": 400, "message": message, "times": 1}
    desk = make_desk("openai", {"calls": [fault]})
    desk.start("submit", desk.items(4), "--max-requests", "2")
    assert desk.simulator.stats()["calls"][UPLOAD] == 3
    assert desk.creates() == 2


@PROVIDERS
def test_a_batch_never_let_in_is_made_smaller(make_desk: MakeDesk, provider: str) -> None:
    """Field report 67: three refusals in a row with nothing else under way halve it; items lose no round."""
    desk = make_desk(provider, refusing(provider, 4, status=429), speed=36_000)
    desk.start("run", desk.items(40), *SOON)
    [halved] = events(desk, "batch.halved")
    assert "refused 3 times in a row" in halved["text"]
    assert desk.balanced()["counts"]["succeeded"] == 40
    assert {line["round"] for line in desk.lines("results.jsonl")} == {0}
    assert [row["requests"] for row in desk("batches", "r", "--json").rows if row["batch_id"]] == [20, 20]
    if provider == "openai":
        assert desk.simulator.stats()["calls"]["openai.files.delete"] == 3


def test_a_batch_larger_than_the_queue_is_made_smaller(make_desk: MakeDesk) -> None:
    """Field report 64: one that fails for lack of room again and again could never fit; its halves do."""
    fault = {"code": "token_limit_exceeded", "line": None, "message": "Enqueued token limit reached", "param": None}
    desk = make_desk("openai", {"batches": [{"min_requests": 21, "fail": [fault]}]}, speed=36_000)
    desk.start("run", desk.items(40), *SOON)
    assert desk.balanced()["counts"]["succeeded"] == 40
    assert {line["round"] for line in desk.lines("results.jsonl")} == {0}


def test_a_small_batch_only_waits(make_desk: MakeDesk) -> None:
    """Field report 67: nothing is cut into crumbs for a limit that has nothing to do with its size."""
    desk = make_desk(faults=refusing("anthropic", 5, status=429), speed=36_000)
    desk.start("run", desk.items(12), *SOON)
    assert events(desk, "batch.halved") == []
    assert desk.creates() == 6


@pytest.mark.parametrize("late", [False, True])
def test_the_file_of_a_halved_batch_is_deleted(make_desk: MakeDesk, late: bool) -> None:
    """Field reports 34, 63: refused as too large at the create or after it, its input file does not stay behind."""
    fault = {"code": "too_many_tasks", "line": None, "message": "too many tasks", "param": None}
    faults = {"batches": [{"nth": 1, "fail": [fault]}]} if late else refusing("openai", 1, status=413)
    desk = make_desk("openai", faults)
    desk.start("submit", desk.items(4))
    for _ in range(2):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit")
    assert len(events(desk, "batch.halved")) == 1
    assert desk.balanced()["counts"]["succeeded"] == 4
    calls = desk.simulator.stats()["calls"]
    assert (calls[UPLOAD], calls["openai.files.delete"]) == (3, 3)


def test_a_canceled_run_leaves_no_input_file(make_desk: MakeDesk) -> None:
    """Field report 63: a batch that waits with its file uploaded is withdrawn, and the file deleted."""
    desk = make_desk("openai", refusing("openai", status=429))
    desk.start("submit", desk.items(2), "--interval", "60s")
    desk("cancel", "r")
    assert desk.simulator.stats()["calls"]["openai.files.delete"] == 1
    assert desk.status()["state"] == "canceled"


@PROVIDERS
def test_missing_lines_are_given_time(make_desk: MakeDesk, provider: str) -> None:
    """Field report 107: three looks in a second prove nothing; only after the usual intervals the item goes again."""
    desk = make_desk(provider, {"items": [{"custom_id": "i2", "first_n_attempts": 1, "kind": "missing"}]})
    desk.start("submit", desk.items(3), "--interval", "60s")
    desk.simulator.advance(LATER)
    for _ in range(5):
        desk("poll", "--resubmit")
    assert desk.creates() == 1
    assert desk.balanced()["counts"]["succeeded"] == 2
    poll_at(desk, 0.1)
    desk("resubmit", "r")
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 3


def test_a_file_that_stayed_is_deleted_later(make_desk: MakeDesk) -> None:
    """Field report 60: a deletion that failed is said once and made good by a later pass."""
    refused = {"endpoint": "openai.files.delete", "action": "status", "status": 503, "times": 1}
    desk = make_desk("openai", {"calls": [refused], "batches": [{"nth": 2, "duration": 2 * LATER}]})
    desk.start("submit", desk.items(2), "--max-requests", "1")
    desk.simulator.advance(LATER)
    desk("poll")
    assert len(events(desk, "file.kept")) == 1
    assert desk.simulator.stats()["calls"]["openai.files.delete"] == 2
    desk.simulator.advance(4 * LATER)
    desk("poll")
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.simulator.stats()["calls"]["openai.files.delete"] == 3
    assert len(events(desk, "file.kept")) == 1


def test_deletions_wait_as_long_as_they_are_told(make_desk: MakeDesk) -> None:
    """After a 429 with `Retry-After` no further deletion of the pass comes before that (field reports 60, 142)."""
    refused = {"endpoint": "openai.files.delete", "action": "status", "status": 429, "times": 1}
    desk = make_desk("openai", {"calls": [refused | {"headers": {"retry-after": "0.4"}}]})
    desk.start("submit", desk.items(3), "--max-requests", "1")
    desk.simulator.advance(LATER)
    began = time.monotonic()
    desk("poll")
    assert time.monotonic() - began >= 0.4
    assert desk.simulator.stats()["calls"]["openai.files.delete"] == 4
    assert desk.balanced()["state"] == "done"


def test_tokens_in_the_queue_have_a_cap(make_desk: MakeDesk) -> None:
    """Field report 65: under a known limit no batch is ever refused; the next goes in when one has ended."""
    desk = make_desk("openai", openai_enqueued_tokens=120)
    desk.start("submit", desk.items(8), "--max-requests", "2", "--max-enqueued-tokens", "100")
    assert [row["tokens"] for row in desk("batches", "r", "--json").rows] == [46] * 4
    assert desk.creates() == 2
    for creates in (4, 4):
        desk.simulator.advance(LATER)
        desk("poll")
        assert desk.creates() == creates
    assert desk.balanced()["counts"]["succeeded"] == 8
    assert events(desk, "batch.queue_full") == []


def test_an_unknown_limit_of_the_queue_costs_only_time(make_desk: MakeDesk) -> None:
    """Field reports 64, 65: batches over the provider's own limit wait for room and go again, no round is spent."""
    desk = make_desk("openai", openai_enqueued_tokens=60)
    desk.start("submit", desk.items(8), "--max-requests", "2", *SOON)
    desk.simulator.advance(5)
    pass_until_quiet(desk, passes=12)
    assert desk.balanced()["counts"]["succeeded"] == 8
    assert {line["round"] for line in desk.lines("results.jsonl")} == {0}
    assert len(events(desk, "batch.queue_full")) > 0
