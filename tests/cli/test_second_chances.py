"""Items that had failed for good and are sent or answered after all; batches given up; results that are gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.passes import LATER, pass_until_quiet
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
DAY = 86_400.0
NEVER_ENDS: dict[str, Any] = {"batches": [{"nth": 1, "stuck": 0.5, "cancel_never_ends": True}]}


@PROVIDERS
def test_failed_items_go_once_more_on_a_persons_wish(make_desk: MakeDesk, provider: str) -> None:
    """`resubmit --failed` moves them from errors.jsonl back into the run, which is done again afterwards."""
    faults = {"items": [{"custom_id": "i[24]", "first_n_attempts": 1, "kind": "invalid_request"}]}
    desk = make_desk(provider, faults)
    desk.start("submit", desk.items(5))
    desk.simulator.advance(LATER)
    desk("poll")
    assert [line["id"] for line in desk.lines("errors.jsonl")] == ["i2", "i4"] or len(desk.lines("errors.jsonl")) == 2
    assert desk.status()["state"] == "done"
    desk("resubmit", "--failed", "r")
    assert desk.balanced()["counts"] == {"planned": 5, "succeeded": 3, "failed": 0, "open": 2}
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"] == {"planned": 5, "succeeded": 5, "failed": 0, "open": 0}
    manifest = json.loads((desk.folder / "out" / "manifest.json").read_bytes())
    assert (manifest["state"], manifest["counts"]["failed"]) == ("done", 0)


def test_records_that_never_were_requests_stay_failed(make_desk: MakeDesk) -> None:
    """A bad record cannot be sent, so `--failed` leaves it and its line."""
    desk = make_desk(faults={"items": [{"custom_id": "b", "first_n_attempts": 1, "kind": "invalid_request"}]})
    items = desk.folder / "items.jsonl"
    items.write_text('{"id":"a","text":"x"}\n[1]\n{"id":"b","text":"y"}\n', "utf-8")
    desk.start("submit", str(items), "--skip-bad")
    desk.simulator.advance(LATER)
    desk("poll")
    desk("resubmit", "--failed", "r")
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"] == {"planned": 3, "succeeded": 2, "failed": 1, "open": 0}


@pytest.mark.parametrize("option", [["--failed"], ["--abandon", "1"]])
def test_second_chances_are_for_one_named_run(make_desk: MakeDesk, option: list[str]) -> None:
    """Sending again what may be paid again is never done to all runs at once."""
    desk = make_desk()
    desk.start("submit", desk.items(1))
    assert "exactly one RUN" in desk("resubmit", *option, code=2).err


@PROVIDERS
def test_a_cancel_that_never_ends_can_be_given_up(make_desk: MakeDesk, provider: str) -> None:
    """`--abandon` frees the items; before that nothing of them is sent again."""
    desk = make_desk(provider, NEVER_ENDS)
    desk.start("submit", desk.items(4), "--deadline", "1h")
    desk("resubmit", "r", "--abandon", "1", code=2)
    pass_until_quiet(desk, passes=3)
    assert desk.creates() == 1
    desk("resubmit", "r", "--abandon", "1")
    assert desk.creates() == 2
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.status()["counts"] == {"planned": 4, "succeeded": 4, "failed": 0, "open": 0}
    assert desk.status()["state"] == "done"


@PROVIDERS
def test_an_answer_after_failing_for_good_moves_the_item(make_desk: MakeDesk, provider: str) -> None:
    """A given-up batch answers late, when its items stand in errors.jsonl already: they move, counted once."""
    faults = {"batches": [{"nth": 1, "duration": 5 * DAY, "ignore_deadline": True, "cancel_seconds": 5 * DAY,
                           "cancel_finishes": True}]}  # fmt: skip
    desk = make_desk(provider, faults)
    desk.start("submit", desk.items(3), "--deadline", "1h", "--max-resubmits", "0")
    for _ in range(2):
        desk.simulator.advance(2 * LATER)
        desk("poll")
    desk("resubmit", "r", "--abandon", "1")
    assert desk.balanced()["counts"] == {"planned": 3, "succeeded": 0, "failed": 3, "open": 0}
    desk.simulator.advance(11 * DAY)
    desk("poll")
    assert desk.balanced()["counts"] == {"planned": 3, "succeeded": 3, "failed": 0, "open": 0}
    assert {line["round"] for line in desk.lines("results.jsonl")} == {0}
    assert desk.status()["state"] == "done"
    [batch] = json.loads((desk.folder / "out" / "manifest.json").read_bytes())["batches"]
    assert (batch["late"], batch["outcomes"]["succeeded"]) == (3, 3)
    desk("poll", "r")
    assert len(desk.lines("results.jsonl")) == 3


def test_a_late_answer_that_fails_the_check_changes_nothing(make_desk: MakeDesk) -> None:
    """Only an answer that would settle the item takes it out of errors.jsonl."""
    faults = {"batches": [{"nth": 1, "duration": 5 * DAY, "ignore_deadline": True, "cancel_seconds": 5 * DAY,
                           "cancel_finishes": True}]}  # fmt: skip
    desk = make_desk(faults=faults)
    schema = desk.folder / "schema.json"
    schema.write_text('{"type":"object"}', "utf-8")
    desk.start("submit", desk.items(2), "--deadline", "1h", "--max-resubmits", "0", "--schema", str(schema))
    for _ in range(2):
        desk.simulator.advance(2 * LATER)
        desk("poll")
    desk("resubmit", "r", "--abandon", "1")
    desk.simulator.advance(11 * DAY)
    desk("poll")
    assert desk.balanced()["counts"] == {"planned": 2, "succeeded": 0, "failed": 2, "open": 0}
    assert {line["outcome"] for line in desk.lines("errors.jsonl")} == {"expired"}


@PROVIDERS
def test_a_lowered_cap_ends_items_that_wait(make_desk: MakeDesk, provider: str) -> None:
    """Pending items whose round is above --max-resubmits get their last error as final line."""
    desk = make_desk(provider, {"items": [{"custom_id": "i1", "kind": "api_error"}]})
    items = desk.items(2)
    desk.start("submit", items)
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.status()["counts"]["open"] == 1
    desk.start("submit", items, "--max-resubmits", "0")
    assert desk.balanced()["counts"] == {"planned": 2, "succeeded": 1, "failed": 1, "open": 0}
    assert desk.lines("errors.jsonl")[0]["outcome"] == "errored"
    assert desk.lines("errors.jsonl")[0]["attempts"] == 1
    assert desk.creates() == 1


@PROVIDERS
def test_results_gone_at_the_provider_are_said_and_end_the_wait(make_desk: MakeDesk, provider: str) -> None:
    """Nothing is sent again by itself; the run says which command would, and `--wait` does not wait for ever."""
    desk = make_desk(provider)
    desk.start("submit", desk.items(2))
    if provider == "anthropic":
        desk.simulator.advance(40 * DAY)
    else:
        desk.simulator.advance(LATER)
        gone = {"endpoint": "openai.files.content", "action": "status", "status": 404}
        desk.simulator.set_faults({"calls": [gone]})
    ran = desk("poll", "--wait", code=4)
    assert "resubmit r --abandon 1" in ran.err
    assert desk.status()["needs"]
    assert desk.creates() == 1
    desk.simulator.set_faults({})
    desk("resubmit", "r", "--abandon", "1")
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.status()["counts"] == {"planned": 2, "succeeded": 2, "failed": 0, "open": 0}


@PROVIDERS
def test_a_server_without_a_list_of_batches_asks_a_person(make_desk: MakeDesk, provider: str) -> None:
    """A create in doubt that nothing can settle is unknown, exit 8, and not asked about for ever."""
    lost = {"endpoint": f"{provider}.batches.create", "action": "status", "status": 500, "when": "after", "nth": 1}
    no_list = {"endpoint": f"{provider}.batches.list", "action": "status", "status": 400}
    desk = make_desk(provider, {"calls": [lost, no_list]})
    desk.start("submit", desk.items(2))
    assert "adopt r" in desk("poll", code=8).err
    batch_id = desk.simulator.state()["batches"][0]["id"]
    desk("adopt", "r", batch_id)
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 2
    assert desk.creates() == 1
