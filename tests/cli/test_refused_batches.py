"""Batches refused whole: what is at fault is named and sent no more, what is not stays open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.passes import LATER, pass_until_quiet
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])


def fault(code: str, line: int | None) -> dict[str, Any]:
    """One entry of a failed batch's errors."""
    return {"code": code, "line": line, "message": f"{code} it is", "param": None}


def test_a_refusal_that_names_one_line_and_the_whole(make_desk: MakeDesk) -> None:
    """Field report 37: the named item fails with its id shown; the others stay open and are not sent by themselves."""
    faults = [fault("missing_required_parameter", 3), fault("url_mismatch", None)]
    desk = make_desk("openai", {"batches": [{"nth": 1, "fail": faults}]})
    items = desk.items(5)
    desk.start("submit", items)
    desk.simulator.advance(LATER)
    said = desk("poll", "--resubmit", code=6).err
    assert "missing_required_parameter (line 3: i3)" in said
    assert "url_mismatch: url_mismatch it is" in said
    desk("poll", "--resubmit")
    assert desk.creates() == 1
    assert desk.balanced()["counts"] == {"planned": 5, "succeeded": 0, "failed": 1, "open": 4}
    assert desk.lines("errors.jsonl")[0]["id"] == "i3"
    desk.start("submit", items)
    pass_until_quiet(desk, passes=1)
    assert desk.balanced()["counts"] == {"planned": 5, "succeeded": 4, "failed": 1, "open": 0}


@PROVIDERS
def test_one_request_too_large_for_the_provider_fails_alone(make_desk: MakeDesk, provider: str) -> None:
    """Field report 34: under a limit nobody told, batches are halved until the large item stands alone and fails."""
    desk = make_desk(provider, **{f"{provider}_max_bytes": 2_000})
    items = [{"id": f"i{number}", "text": str(number) * (3_000 if number == 3 else 30)} for number in range(1, 6)]
    desk.start("submit", desk.items(items))
    pass_until_quiet(desk, passes=2)
    assert desk.balanced()["counts"] == {"planned": 5, "succeeded": 4, "failed": 1, "open": 0}
    [line] = desk.lines("errors.jsonl")
    assert (line["id"], line["outcome"]) == ("i3", "errored")
    assert {result["round"] for result in desk.lines("results.jsonl")} == {0}


@pytest.mark.slow
@PROVIDERS
def test_a_create_that_never_works_names_what_to_check(make_desk: MakeDesk, provider: str) -> None:
    """Field reports 39, 54: after a few the run stops with model, endpoint and advice on size; there is no batch."""
    lost = {"endpoint": f"{provider}.batches.create", "action": "drop", "when": "before"}
    desk = make_desk(provider, {"calls": [lost]}, speed=36_000)
    said = desk.start("run", desk.items(2), "--settle-after", "0.01s", code=6).err
    for words in ("--max-bytes", desk.status()["run"], "/v1/"):
        assert words in said
    assert desk.creates() == 5
    assert desk.simulator.state()["batches"] == []
    assert desk.balanced()["counts"]["open"] == 2
