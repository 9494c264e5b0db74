"""A cost cap that cannot be kept is refused before anything is made."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
CAP = ("--max-cost", "100")


def finished(desk: Desk) -> str:
    """A file of finished requests, made by planning a run of items."""
    desk.start("submit", desk.items(2), name="template", code=0)
    path = desk.folder / "requests.jsonl"
    path.write_bytes((desk.folder / "state" / "template" / "spool.jsonl").read_bytes())
    return str(path)


@pytest.mark.parametrize(("verb", "provider"), [("submit", "anthropic"), ("run", "openai"), ("fanout", "anthropic")])
def test_finished_requests_take_no_cap(make_desk: MakeDesk, provider: str, verb: str) -> None:
    """Neither model nor length of their answers is known, so exit 2, and neither run nor folder is left behind."""
    desk = make_desk(provider)
    requests = finished(desk)
    calls = desk.simulator.stats()["calls"]
    named = ("--name", "capped", "--out", str(desk.folder / "capped"))
    ran = desk(verb, requests, "--provider", provider, "--requests", *CAP, "--max-tokens", "9", *named, code=2)
    assert "--max-cost cannot be kept" in ran.err
    assert [row["run"] for row in desk("status", "--json").rows] == ["template"]
    assert not (desk.folder / "state" / "capped").exists()
    assert desk.simulator.stats()["calls"] == calls


@PROVIDERS
def test_a_model_without_a_price_takes_no_cap(make_desk: MakeDesk, provider: str) -> None:
    """Also where the cap comes with a later command: the run stays as it was."""
    desk = make_desk(provider)
    items = desk.items(2)
    model = ("--model", "house-model-1", "--max-tokens", "9")
    desk.start("submit", items, *model, *CAP, code=2)
    assert not (desk.folder / "state.db").exists()
    desk.start("submit", items, *model)
    desk.start("submit", items, *model, *CAP, code=2)
    assert desk.status()["state"] == "open"
    assert desk.creates() == 1


def test_a_plan_knows_the_cap(make_desk: MakeDesk) -> None:
    """It takes every option that says what a run is, and tells what the cap would hold back."""
    desk = make_desk("anthropic")
    items = desk.items(200)
    tight = desk.start("plan", items, "--max-tokens", "1000", "--max-cost", "0.01")
    assert "over --max-cost" in tight.out
    assert "over --max-cost" not in desk.start("plan", items, "--max-tokens", "1000", *CAP).out
    desk.start("plan", items, "--model", "house-model-1", *CAP, code=2)
    assert not (desk.folder / "state.db").exists()
