"""Field reports of collecting that no other test holds: the right behaviour of each, by command."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from batchctl.core.errors import StorageError
from batchctl.simulator.answers import answer
from tests.cli.passes import LATER, answers, counted, pass_until_quiet, settle
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
DOWNLOAD = {"anthropic": "anthropic.batches.results", "openai": "openai.files.content"}


# Collecting


@pytest.mark.parametrize("odd", [{"error_file_id": ""}, {"error_file_id": "missing"}])
def test_no_error_file_in_any_spelling(make_desk: MakeDesk, odd: dict[str, Any]) -> None:
    """Field report 94: an empty and a missing error file id both mean that there is none."""
    desk = make_desk("openai", {"batches": [odd]})
    assert settle(desk, desk.items(3))["counts"] == counted(3, 3, 0)


@PROVIDERS
def test_counts_are_never_trusted_over_lines(make_desk: MakeDesk, provider: str) -> None:
    """Field report 99: counts say that all went well, a line says it did not: that item goes again, none shifts."""
    faults = {
        "batches": [{"nth": 1, "counts": "all_completed"}],
        "items": [{"custom_id": "i4", "first_n_attempts": 1, "kind": "status_0"}],
    }
    desk = make_desk(provider, faults)
    assert settle(desk, desk.items(10), passes=2)["counts"] == counted(10, 10, 0)
    assert answers(desk) == {f"i{number}": answer(f"Answer this: text of item {number}") for number in range(1, 11)}
    assert [row["requests"] for row in desk("batches", "r", "--json").rows] == [10, 1]


@PROVIDERS
def test_odd_lines_cost_nothing(make_desk: MakeDesk, provider: str) -> None:
    """Field reports 102, 104, 106: odd, foreign and repeated lines, CRLF and no content type; the good ones count."""
    damage = {"action": "lines", "no_id": 1, "junk": 2, "unknown": 1, "duplicate": 1, "blank": 2, "crlf": True}
    faults = {
        "calls": [{"endpoint": DOWNLOAD[provider], "no_content_type": True, **damage}],
        "items": [{"custom_id": "i3", "first_n_attempts": 1, "kind": "string_error"}],
    }
    desk = make_desk(provider, faults)
    desk.start("submit", desk.items(5))
    desk.simulator.advance(LATER)
    said = desk("poll").err
    [kept] = (desk.folder / "state" / "r").glob("quarantine-*.jsonl")
    assert str(kept) in said
    assert len(kept.read_bytes().splitlines()) >= 4
    assert [row["quarantined"] for row in desk("batches", "r", "--json").rows] == [len(kept.read_bytes().splitlines())]
    assert desk.balanced()["counts"] == counted(5, 4, 0)
    pass_until_quiet(desk, passes=2)
    assert answers(desk) == {f"i{number}": answer(f"Answer this: text of item {number}") for number in range(1, 6)}


@pytest.mark.slow
@PROVIDERS
def test_unreadable_results_hold_no_connection(make_desk: MakeDesk, provider: str) -> None:
    """Field report 105: many batches whose results break off are all collected by later looks."""
    broken = {"action": "truncate", "bytes": 10, "content_length": True, "times": 12}
    desk = make_desk(provider, {"calls": [{"endpoint": DOWNLOAD[provider], **broken}]})
    status = settle(desk, desk.items(12), "--max-requests", "1", passes=4)
    assert status["counts"] == counted(12, 12, 0)
    assert desk.creates() == 12


@PROVIDERS
@pytest.mark.parametrize("announced", [True, False])
def test_a_cut_download_is_fetched_again(make_desk: MakeDesk, provider: str, announced: bool) -> None:
    """Field report 107: a body cut short is never taken for complete, so nothing is bought again."""
    cut = {"action": "truncate", "bytes": 600, "content_length": announced, "times": 2}
    desk = make_desk(provider, {"calls": [{"endpoint": DOWNLOAD[provider], **cut}]})
    assert settle(desk, desk.items(5), passes=4)["counts"] == counted(5, 5, 0)
    assert desk.creates() == 1


@PROVIDERS
def test_collecting_again_changes_nothing(make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, provider: str) -> None:
    """Field reports 114, 122: a collection that throws is made again; results, tokens and rounds are booked once."""
    from batchctl.runs import collecting, importing

    desk = make_desk(provider)
    desk.start("submit", desk.items(4))
    desk.simulator.advance(LATER)
    real, failures = importing.import_file, [StorageError("the disk hiccups")]

    async def hiccups(*arguments: Any) -> Any:
        tally = await real(*arguments)
        if failures:
            raise failures.pop()
        return tally

    monkeypatch.setattr(collecting, "import_file", hiccups)
    assert "hiccups" in desk("poll", code=1).err
    desk("poll")
    once = desk.balanced()
    assert once["counts"] == counted(4, 4, 0)
    desk("poll", "r")
    usage = [line["usage"] for line in desk.lines("results.jsonl")]
    assert once["tokens"]["input"] == sum(each["input_tokens"] for each in usage)
    assert desk.balanced()["tokens"] == once["tokens"]
    assert desk.creates() == 1


@PROVIDERS
def test_one_good_and_one_bad(make_desk: MakeDesk, provider: str) -> None:
    """Field report 115: the failure that stands in the error file alone is in the summary and in errors.jsonl."""
    desk = make_desk(provider, {"items": [{"custom_id": "i2", "kind": "invalid_request"}]}, speed=36_000)
    ran = desk.start("run", desk.items(2), code=3)
    assert "1 succeeded, 1 failed of 2" in ran.err
    assert [line["id"] for line in desk("errors", "r").rows] == ["i2"]


@PROVIDERS
def test_odd_answers_are_answers(make_desk: MakeDesk, provider: str) -> None:
    """Field reports 116, 118: refused, empty, filtered and cut answers are kept with their reason, sent once."""
    kinds = ("refusal", "null_content", "empty", "content_filter", "truncated", "not_json")
    items = [{"custom_id": f"i{number}", "kind": kind} for number, kind in enumerate(kinds, start=1)]
    desk = make_desk(provider, {"items": items})
    assert settle(desk, desk.items(7), passes=2)["counts"] == counted(7, 7, 0)
    assert desk.creates() == 1
    reasons = {line["id"]: line["stop_reason"] for line in desk.lines("results.jsonl")}
    assert reasons["i5"] in ("max_tokens", "length")
    assert reasons["i7"] in ("end_turn", "stop")
    assert reasons["i1"] != reasons["i7"]
    assert reasons["i4"] != reasons["i7"]


@PROVIDERS
def test_an_answer_cut_at_the_limit_fails_the_check_once(make_desk: MakeDesk, provider: str) -> None:
    """Field report 118: half a JSON object under a schema is invalid, its text is kept, it is not sent again."""
    desk = make_desk(provider, {"items": [{"custom_id": "i1", "kind": "truncated"}]})
    schema = desk.folder / "schema.json"
    schema.write_text('{"type":"object","required":["category"]}', "utf-8")
    prompt = desk.folder / "classify.txt"
    prompt.write_text('Categories: ["billing","login"]\nTicket: {{ text }}', "utf-8")
    arguments = ("--schema", str(schema), "--prompt", str(prompt))
    assert settle(desk, desk.items(2), *arguments, passes=2)["counts"] == counted(2, 1, 1)
    [line] = desk.lines("errors.jsonl")
    assert (line["outcome"], line["attempts"]) == ("invalid", 1)
    assert line["error"]["code"] in ("max_tokens", "length")
    assert line["text"].startswith("{")
    assert desk.creates() == 1


# Resubmission


@PROVIDERS
def test_progress_is_kept_by_item(make_desk: MakeDesk, provider: str) -> None:
    """Field report 123: a resubmitted part, in another order, throws away nothing that was finished."""
    faults = {"items": [{"custom_id": "i[2468]", "first_n_attempts": 1, "kind": "api_error"}]}
    desk = make_desk(provider, faults)
    desk.start("submit", desk.items(9), "--max-requests", "3")
    pass_until_quiet(desk, passes=1)
    before = answers(desk)
    assert sorted(before) == ["i1", "i3", "i5", "i7", "i9"]
    pass_until_quiet(desk, passes=2)
    after = answers(desk)
    assert {item: after[item] for item in before} == before
    assert after == {f"i{number}": answer(f"Answer this: text of item {number}") for number in range(1, 10)}
    assert desk.balanced()["counts"] == counted(9, 9, 0)
