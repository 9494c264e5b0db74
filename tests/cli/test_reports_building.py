"""Field reports of reading and building that no other test holds: the right behaviour of each, by command."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable

import pytest

from batchctl.simulator.answers import answer
from tests.cli.passes import LATER, answers, counted, pass_until_quiet, settle, spool, write
from tests.conftest import MODELS, Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
DOWNLOAD = {"anthropic": "anthropic.batches.results", "openai": "openai.files.content"}


# Reading the item list


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
