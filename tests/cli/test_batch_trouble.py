"""The batch lane in trouble: refused accounts, lost answers, cancels, caps; each run ends balanced all the same."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.passes import LATER, pass_until_quiet
from tests.conftest import Desk, run_command

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])


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


def test_a_missing_key_stops_nothing(make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll without a key says so; the run stays as it is and goes on with the key."""
    desk = make_desk()
    desk.start("submit", desk.items(3))
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert "ANTHROPIC_API_KEY" in desk("poll", code=2).err
    assert desk.status()["state"] == "open"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-key")
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 3


def test_trouble_with_one_run_does_not_stop_another(make_desk: MakeDesk) -> None:
    """A poll looks at every run it can and tells the worst at the end."""
    desk = make_desk()
    items = desk.items(3)
    desk.start("submit", items, "--out", str(desk.folder / "out-a"), name="a")
    desk.start("submit", items, "--model", "claude-opus-4-1", "--out", str(desk.folder / "out-b"), name="b")
    desk.simulator.advance(LATER)
    results = desk.folder / "out-a" / "results.jsonl"
    results.unlink()
    results.mkdir()
    ran = desk("poll", code=1)
    assert "results.jsonl" in ran.err
    assert desk.status("b")["state"] == "done"


@PROVIDERS
def test_a_cancel_that_fails_is_asked_for_again(make_desk: MakeDesk, provider: str) -> None:
    """One 503 does not leave the other batches running."""
    faults = {
        "batches": [{"stuck": 0.5}],
        "calls": [{"endpoint": f"{provider}.batches.cancel", "action": "status", "status": 503, "nth": 1}],
    }
    desk = make_desk(provider, faults)
    desk.start("submit", desk.items(6), "--max-requests", "3")
    desk("cancel", "r")
    for _ in range(4):
        desk.simulator.advance(LATER)
        desk("poll")
    assert desk.balanced()["counts"]["open"] == 0
    assert desk.status()["state"] == "canceled"
    manifest = json.loads((desk.folder / "out" / "manifest.json").read_text("utf-8"))
    assert manifest["state"] == "canceled"


def test_a_reused_file_does_not_find_an_older_batch(make_desk: MakeDesk) -> None:
    """After a queue-full refusal the same file goes again; a lost create then is found by its own key alone."""
    faults = {
        "batches": [{"nth": 1, "fail": "token_limit_exceeded"}],
        "calls": [{"endpoint": "openai.batches.create", "action": "drop", "when": "after", "nth": 2}],
    }
    desk = make_desk("openai", faults, speed=36_000)
    desk.start("run", desk.items(3))
    assert desk.balanced()["counts"]["succeeded"] == 3
    assert desk.simulator.stats()["calls"]["openai.files.upload"] == 1


def test_waiting_runs_are_looked_at_in_turn(make_desk: MakeDesk) -> None:
    """`poll --wait` brings a quick run home although an older one is stuck."""
    desk = make_desk(faults={"batches": [{"nth": 1, "stuck": 0.5}]})
    items = desk.items(3)
    desk.start("submit", items, "--out", str(desk.folder / "out-a"), name="a")
    desk.start("submit", items, "--model", "claude-opus-4-1", "--out", str(desk.folder / "out-b"), name="b")
    desk.simulator.advance(LATER)
    desk("poll", "--wait-limit", "0.3s", code=4)
    assert desk.status("b")["state"] == "done"


def test_accept_waits_for_batches_that_may_answer(make_desk: MakeDesk) -> None:
    """A run whose batches are being canceled is not closed over their answers."""
    desk = make_desk(faults={"batches": [{"stuck": 0.5}]})
    desk.start("submit", desk.items(4))
    desk("cancel", "r")
    refused = desk("accept", "r", code=2)
    assert "may still answer" in refused.err
    for _ in range(4):
        desk.simulator.advance(LATER)
        desk("poll")
    assert desk.balanced()["counts"]["open"] == 0


def test_two_runs_never_share_a_folder(make_desk: MakeDesk) -> None:
    """Each would take the other's answers for its own."""
    desk = make_desk()
    items = desk.items(3)
    desk.start("submit", items, name="a")
    assert "--out" in desk.start("submit", items, "--model", "claude-opus-4-1", name="b", code=2).err
    assert desk.creates() == 1


def test_a_schema_that_cannot_be_used_is_refused_at_the_start(make_desk: MakeDesk) -> None:
    """A broken schema must not be found when the answers are bought."""
    desk = make_desk()
    schema = desk.folder / "schema.json"
    schema.write_text('{"type": "nonsense"}', "utf-8")
    desk.start("submit", desk.items(3), "--schema", str(schema), code=2)
    assert desk.creates() == 0


@pytest.mark.slow
@PROVIDERS
def test_creates_that_never_arrive_stop_the_run(make_desk: MakeDesk, provider: str) -> None:
    """A create that always answers 500 is tried a bounded number of times (field report 39)."""
    faults = {"calls": [{"endpoint": f"{provider}.batches.create", "action": "status", "status": 500}]}
    desk = make_desk(provider, faults)
    ran = desk.start("run", desk.items(3), "--interval", "0.02s", "--settle-after", "0.02s", code=6)
    assert "came to nothing" in ran.err
    assert desk.creates() == 5
    assert desk.status()["counts"]["open"] == 3


def test_answers_without_a_file_are_not_bought_again(make_desk: MakeDesk) -> None:
    """`completed` with counts and no output file: a person looks, nothing is sent (field report 92's kin)."""
    desk = make_desk("openai", {"batches": [{"output_file_id": "null"}]})
    desk.start("submit", desk.items(3))
    pass_until_quiet(desk, passes=12)
    assert desk.creates() == 1
    assert desk.status()["counts"]["open"] == 3
    assert "--abandon 1" in desk.status()["needs"]


@pytest.mark.parametrize(("when_a", "when_b", "code"), [("before", "after", 8), ("after", "before", 0)])
def test_lost_creates_of_equal_runs_are_not_guessed(make_desk: MakeDesk, when_a: str, when_b: str, code: int) -> None:
    """Two runs with equal ids and sizes, both creates in doubt, no keys: nobody takes the other's batch.

    What was listed before a create cannot be of it, so where only the first arrived the second knows itself absent.
    """
    create = {"endpoint": "anthropic.batches.create", "action": "drop"}
    desk = make_desk(faults={"calls": [create | {"when": when_a, "nth": 1}, create | {"when": when_b, "nth": 2}]})
    items = desk.items(3)
    desk.start("submit", items, "--out", str(desk.folder / "out-a"), name="a")
    desk.start("submit", items, "--model", "claude-opus-4-1", "--out", str(desk.folder / "out-b"), name="b")
    desk.simulator.advance(LATER)
    for name in ("a", "b"):
        desk("poll", name, code=8 if name == "a" else code)
    assert desk.status("b")["batches"]["unknown"] == (1 if code else 0)
    assert desk.simulator.violations() == []


@PROVIDERS
def test_a_missing_model_stops_the_run(make_desk: MakeDesk, provider: str) -> None:
    """A wrong model name fails no item: the run stops, the items stay open."""
    desk = make_desk(provider, speed=36_000)
    desk.start("run", desk.items(3), "--model", "no-such-model", code=6)
    assert desk.status()["counts"]["open"] == 3


def test_the_state_file_may_be_given_by_variable(make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of the state file reaches no other option."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    monkeypatch.setenv("BATCHCTL_STATE", str(desk.folder / "state.db"))
    assert len(run_command("items", "r", "--json").rows) == 2


@pytest.mark.slow
def test_full_queues_do_not_count_as_lost_creates(make_desk: MakeDesk) -> None:
    """Refusals for lack of room are answers: one create lost after five of them is no reason to stop."""
    faults = {
        "batches": [{"nth": [1, 2, 3, 4, 5], "fail": "token_limit_exceeded"}],
        "calls": [{"endpoint": "openai.batches.create", "action": "drop", "when": "before", "nth": 6}],
    }
    desk = make_desk("openai", faults, speed=36_000)
    desk.start("run", desk.items(3), "--interval", "0.02s", "--settle-after", "0.02s")
    assert desk.balanced()["counts"]["succeeded"] == 3
