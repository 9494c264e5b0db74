"""Field reports of the batch lane that no other test holds: each row's right behaviour, over the command line."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import Any

import pytest

from batchctl.core.errors import StorageError
from batchctl.simulator.answers import answer
from tests.cli.passes import LATER, pass_until_quiet
from tests.conftest import MODELS, Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
DOWNLOAD = {"anthropic": "anthropic.batches.results", "openai": "openai.files.content"}


def write(desk: Desk, data: bytes, name: str = "items.jsonl") -> str:
    """An input file with exactly these bytes."""
    path = desk.folder / name
    path.write_bytes(data)
    return str(path)


def settle(desk: Desk, items: str, *more: str, passes: int = 1) -> dict[str, Any]:
    """Submit and bring a run home; its status."""
    desk.start("submit", items, *more)
    pass_until_quiet(desk, passes=passes)
    return desk.balanced()


def answers(desk: Desk) -> dict[str, str]:
    """The answers by item."""
    return {line["id"]: line["text"] for line in desk.lines("results.jsonl")}


def spool(desk: Desk) -> list[bytes]:
    """The request lines as they go to the provider; the file ends with a newline."""
    data = (desk.folder / "state" / "r" / "spool.jsonl").read_bytes()
    assert data.endswith(b"\n")
    return data[:-1].split(b"\n")


def counted(planned: int, succeeded: int, failed: int) -> dict[str, int]:
    """Counts of a run."""
    return {
        "planned": planned,
        "succeeded": succeeded,
        "failed": failed,
        "open": planned - succeeded - failed,
    }


# Reading the item list


def failed_looks(number: int) -> str:
    """How so many failed looks in a row are told."""
    return "a look failed" if number == 1 else f"{number} looks in a row failed"


@PROVIDERS
@pytest.mark.parametrize(
    "data",
    [
        codecs.BOM_UTF8 + b'{"id":"a","text":"x"}\n{"id":"b","text":"y"}\n',
        b'\n{"id":"a","text":"x"}\r\n\r\n   \r\n{"id":"b","text":"y"}\r\n\n',
        '{"id":"a","text":"x"}\n{"id":"b","text":"y"}'.encode("utf-16"),
    ],
)
def test_what_goes_out_is_one_object_a_line(make_desk: MakeDesk, provider: str, data: bytes) -> None:
    """Field reports 1, 5, 18: no mark, blank line or carriage return of the input reaches the provider."""
    desk = make_desk(provider)
    assert settle(desk, write(desk, data))["counts"] == counted(2, 2, 0)
    assert answers(desk) == {"a": answer("Answer this: x"), "b": answer("Answer this: y")}
    lines = spool(desk)
    assert len(lines) == 2
    assert all(line.startswith(b"{") and b"\r" not in line and json.loads(line) for line in lines)


@PROVIDERS
def test_a_spreadsheet_is_read_as_it_was_meant(make_desk: MakeDesk, provider: str) -> None:
    """Field reports 6, 8, 9, 11, 12: marks, long and many-line cells, counts of records, ids as strings."""
    desk = make_desk(provider)
    long = "z" * 200_000
    data = f'\ufeffid,text\r\n007,"line one\nline two"\r\n7,"a,b""c"\r\n8,{long}\r\n'.encode()
    assert settle(desk, write(desk, data, "items.csv"))["counts"] == counted(3, 3, 0)
    asked = {"007": "line one\nline two", "7": 'a,b"c', "8": long}
    assert answers(desk) == {item: answer(f"Answer this: {text}") for item, text in asked.items()}


@PROVIDERS
def test_a_value_that_is_none_costs_one_item(make_desk: MakeDesk, provider: str) -> None:
    """Field report 14: NaN is an item's own error and never goes out; an empty cell is no NaN either."""
    desk = make_desk(provider)
    data = b'{"id":"a","text":"x","score":1}\n{"id":"b","text":"y","score":NaN}\n'
    assert settle(desk, write(desk, data), "--skip-bad")["counts"] == counted(2, 1, 1)
    assert "NaN" in desk.lines("errors.jsonl")[0]["error"]["message"]
    prompt = desk.folder / "scores.txt"
    prompt.write_text("{{ text }} {{ score }}", "utf-8")
    table = write(desk, b"id,text,score\na,x,\nb,y,2\n", "items.csv")
    desk.start("submit", table, "--prompt", str(prompt), "--out", str(desk.folder / "table"), name="table")
    sent = (desk.folder / "state" / "table" / "spool.jsonl").read_bytes()
    assert b"NaN" not in sent
    assert b'"x "' in sent


@PROVIDERS
def test_one_broken_character_costs_nothing(make_desk: MakeDesk, provider: str) -> None:
    """Field report 15: a lone surrogate is replaced and said; the other 99 items go out as they are."""
    desk = make_desk(provider)
    lines = [json.dumps({"id": f"i{number}", "text": "x"}) for number in range(99)]
    data = "\n".join([*lines, '{"id":"odd","text":"abc \\ud83d xyz"}']).encode()
    ran = desk.start("submit", write(desk, data))
    assert "1 item held broken Unicode" in ran.err
    pass_until_quiet(desk, passes=1)
    assert desk.balanced()["counts"] == counted(100, 100, 0)
    assert answers(desk)["odd"] == answer("Answer this: abc \ufffd xyz")


# Ids and matching


@PROVIDERS
def test_an_id_that_stands_twice_has_one_answer(make_desk: MakeDesk, provider: str) -> None:
    """Field reports 20, 21: only one of two items of an id goes out, and every answer echoes its own prompt."""
    desk = make_desk(provider)
    items = desk.items([{"id": item, "text": text} for item, text in (("x", "one"), ("y", "two"), ("x", "three"))])
    refused = desk.start("submit", items, code=2)
    assert "'x'" in refused.err
    assert desk.creates() == 0
    assert settle(desk, items, "--skip-bad")["counts"] == counted(3, 2, 1)
    assert answers(desk) == {"x": answer("Answer this: one"), "y": answer("Answer this: two")}


@PROVIDERS
def test_runs_with_the_same_ids_never_cross(make_desk: MakeDesk, provider: str) -> None:
    """Field report 22: two runs and their batches with equal ids are alive at once; each keeps its own answers."""
    desk = make_desk(provider)
    for name in ("one", "two"):
        items = desk.items([{"id": f"i{number}", "text": f"{name} {number}"} for number in range(6)], f"{name}.jsonl")
        desk.start("submit", items, "--max-requests", "3", "--out", str(desk.folder / name), name=name)
    desk.simulator.advance(LATER)
    desk("poll")
    for name in ("one", "two"):
        found = {line["id"]: line["text"] for line in desk("results", name).rows}
        assert found == {f"i{number}": answer(f"Answer this: {name} {number}") for number in range(6)}


@PROVIDERS
def test_results_come_in_input_order_when_asked(make_desk: MakeDesk, provider: str) -> None:
    """Field report 27: shuffled results are matched by id, and --ordered restores the order of the input."""
    desk = make_desk(provider)
    names = [f"i{number}" for number in (5, 3, 9, 1, 7, 2, 8, 4, 6, 0)]
    settle(desk, desk.items([{"id": name, "text": name} for name in names]), "--max-requests", "4")
    found = desk("results", "r", "--ordered").rows
    assert [line["id"] for line in found] == names
    assert all(line["text"] == answer(f"Answer this: {line['id']}") for line in found)
    assert [line["id"] for line in desk.lines("results.jsonl")] != names


# Building requests


@pytest.mark.slow
@pytest.mark.parametrize(("provider", "limit"), [("openai", 50_000), ("anthropic", 100_000)])
def test_a_list_over_the_limit_is_split_by_itself(make_desk: MakeDesk, provider: str, limit: int) -> None:
    """Field reports 31, 32: one item more than a batch may hold makes two batches of one run."""
    desk = make_desk(provider)
    items = write(desk, b'{"text":"x"}\n' * (limit + 1))
    ran = desk(
        "plan", items, "--provider", provider, "--model", MODELS[provider], "--prompt", desk.prompt, "--number-ids",
        "--json",
    )  # fmt: skip
    assert [batch["requests"] for batch in ran.rows[0]["batches"]] == [limit, 1]


@PROVIDERS
def test_a_refusal_is_shown_as_it_came(make_desk: MakeDesk, provider: str) -> None:
    """Field report 31: the provider's own words, with model and endpoint; nothing is sent again by itself."""
    refusal = {"action": "status", "status": 400, "message": "no batches on Sundays"}
    desk = make_desk(provider, {"calls": [{"endpoint": f"{provider}.batches.create", **refusal}]})
    ran = desk.start("submit", desk.items(2), code=6)
    for words in ("no batches on Sundays", MODELS[provider], "/v1/"):
        assert words in ran.err
    desk("poll", "--resubmit")
    assert desk.creates() == 1
    assert desk.balanced()["counts"] == counted(2, 0, 0)


def test_a_refusal_without_a_line_leaves_every_item_open(make_desk: MakeDesk) -> None:
    """Field report 37: a batch that fails late and names no item is not sent again unchanged."""
    fault = {"code": "url_mismatch", "line": None, "message": "the url is another one", "param": None}
    desk = make_desk("openai", {"batches": [{"nth": 1, "fail": [fault]}]})
    items = desk.items(3)
    desk.start("submit", items)
    desk.simulator.advance(LATER)
    ran = desk("poll", "--resubmit", code=6)
    assert "url_mismatch: the url is another one" in ran.err
    assert desk.balanced()["counts"] == counted(3, 0, 0)
    assert desk.creates() == 1
    desk.start("submit", items)
    desk.simulator.advance(LATER)
    desk("poll")
    assert {line["round"] for line in desk.lines("results.jsonl")} == {0}
    assert desk.balanced()["counts"] == counted(3, 3, 0)


@PROVIDERS
@pytest.mark.parametrize("name", ["extra_headers", "extra_body", "extra_query"])
def test_words_of_an_sdk_are_no_parameters(make_desk: MakeDesk, provider: str, name: str) -> None:
    """Field report 40: wrappers that only an SDK understands are refused before anything goes out."""
    desk = make_desk(provider)
    assert name in desk.start("submit", desk.items(2), "--param", f'{name}={{"x":"y"}}', code=2).err
    assert desk.simulator.stats()["calls"] == {}


def test_betas_are_refused_in_bodies_and_kept_out_of_them(make_desk: MakeDesk) -> None:
    """Field report 41: --beta never stands in a request, also not in a resubmitted one."""
    desk = make_desk(faults={"items": [{"custom_id": "i2", "first_n_attempts": 1, "kind": "api_error"}]})
    items = desk.items(2)
    assert "betas" in desk.start("submit", items, "--param", 'betas=["x-2025"]', code=2).err
    assert settle(desk, items, "--beta", "x-2025", passes=2)["counts"] == counted(2, 2, 0)
    assert desk.creates() == 2
    assert not any(b"x-2025" in line for line in spool(desk))


@PROVIDERS
def test_one_fault_of_all_items_is_one_line(make_desk: MakeDesk, provider: str) -> None:
    """Field reports 42, 92, 115: every item refused alike is one grouped error with its count, sent once, exit 3."""
    desk = make_desk(provider, {"items": [{"kind": "unsupported_parameter"}]}, speed=36_000)
    ran = desk.start("run", desk.items(20), code=3)
    assert "20 failed" in ran.err
    assert desk.creates() == 1
    [row] = desk("errors", "r", "--summary", "--json").rows
    assert (row["count"], row["outcome"]) == (20, "errored")
    assert "temperature" in row["error_message"]
    assert desk.balanced()["counts"] == counted(20, 0, 20)


@PROVIDERS
def test_the_deepest_message_is_the_one_shown(make_desk: MakeDesk, provider: str) -> None:
    """Field reports 43, 100: an error two levels deep, or inside a body, is an error with its own words."""
    desk = make_desk(provider, {"items": [{"custom_id": "i2", "kind": "invalid_request"}]})
    assert settle(desk, desk.items(3))["counts"] == counted(3, 2, 1)
    [line] = desk.lines("errors.jsonl")
    assert line["error"]["message"] == "messages.0.content: simulated invalid request"
    assert line["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("provider", "endpoint"),
    [("anthropic", "/v1/messages"), ("openai", "/v1/chat/completions"), ("openai", "/v1/embeddings")],
)
def test_an_empty_text_costs_itself_only(make_desk: MakeDesk, provider: str, endpoint: str) -> None:
    """Field report 44: empty, null and blank texts are named by line; the neighbour is answered."""
    desk = make_desk(provider)
    items = desk.items([{"id": str(number), "text": text} for number, text in enumerate(("", None, "   ", "fine"))])
    assert settle(desk, items, "--skip-bad", "--endpoint", endpoint)["counts"] == counted(4, 1, 3)
    assert [line["id"] for line in desk.lines("results.jsonl")] == ["3"]
    assert all("empty" in line["error"]["message"] for line in desk.lines("errors.jsonl"))


@PROVIDERS
def test_a_wrong_address_stops_at_the_first_call(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    """Field report 45: a bare 404 stops the run with the path it was about; the right address goes on."""
    desk = make_desk(provider)
    items = desk.items(2)
    variable = f"{provider.upper()}_BASE_URL"
    right = desk.simulator.anthropic_base_url if provider == "anthropic" else desk.simulator.openai_base_url
    monkeypatch.setenv(variable, f"{desk.simulator.url}/wrong/v1")
    assert "/wrong/v1/" in desk.start("submit", items, code=6).err
    assert sum(desk.simulator.stats()["calls"].values()) <= 2  # where there are no keys, a list is asked for first
    monkeypatch.setenv(variable, right)
    assert settle(desk, items)["counts"] == counted(2, 2, 0)


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
