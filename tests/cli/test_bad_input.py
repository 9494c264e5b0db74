"""Bad input: exit 2, one clear text with a hint, nothing sent, nothing created."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Desk

MakeDesk = Callable[..., Desk]


def nothing_happened(desk: Desk) -> None:
    """No call reached the provider and no file was made beside the user's own."""
    assert desk.simulator.stats()["calls"] == {}
    made = {path.name for path in desk.folder.iterdir()}
    assert made <= {"items.jsonl", "items.csv", "prompt.txt", "system.txt"}, made


def write(desk: Desk, data: bytes, name: str = "items.jsonl") -> str:
    """A file with exactly these bytes."""
    path = desk.folder / name
    path.write_bytes(data)
    return str(path)


GOOD = b'{"id": "a", "text": "x"}\n'


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", ["empty"]),
        (b"\n\n  \n", ["no items"]),
        (b"this is not json\n", ["line 1"]),
        (GOOD + b'{"id": "b", "text": \n', ["line 2"]),
        (GOOD + b'[1, 2]\n"hi"\nnull\n', ["line 2", "line 3", "line 4", "object"]),
        (GOOD + b'{"id": "a", "text": "y"}\n', ["'a'", "lines 1 and 2"]),
        (b'{"text": "x"}\n', ["line 1", "'id'", "--number-ids"]),
        (b'{"id": "a", "body": "x"}\n', ["line 1", "'a'", "text"]),
        (b'{"id": "a", "text": "\xff\xfe"}\n', ["line 1", "UTF-8"]),
        (b'{"id": "a", "Ticket text": "x"}\n', ["line 1", '{{ item["Ticket text"] }}']),
        (b'{"id": null, "text": "x"}\n', ["line 1", "id"]),
        (b'{"id": true, "text": "x"}\n', ["line 1", "id"]),
        (b'{"id": "a", "text": "  "}\n', ["line 1", "empty"]),
        (b'{"id": "a", "text": NaN}\n', ["line 1"]),
    ],
)
def test_a_bad_list_is_refused(make_desk: MakeDesk, data: bytes, said: list[str]) -> None:
    """Each kind of bad input names what is wrong and where."""
    desk = make_desk()
    ran = desk.start("submit", write(desk, data), code=2)
    for words in said:
        assert words in ran.err
    assert "hint:" in ran.err
    nothing_happened(desk)


def test_a_refused_run_beside_others_leaves_no_folder(make_desk: MakeDesk) -> None:
    """Where a state file exists already, a list that is refused adds nothing to it and nothing beside it."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    before = {path for path in desk.folder.rglob("*") if path.suffix != ".jsonl"}
    out = str(desk.folder / "other")
    desk.start("submit", write(desk, b"{", "broken.jsonl"), "--out", out, name="other", code=2)
    assert {path for path in desk.folder.rglob("*") if path.suffix != ".jsonl"} == before
    desk.start("submit", write(desk, b"{", "items.jsonl"), code=2)
    assert (desk.folder / "state" / "r" / "lock").exists()


def test_a_broken_line_deep_in_the_file_is_named(make_desk: MakeDesk) -> None:
    """Line 7,321 of 10,000 is broken: it is named, nothing is sent."""
    desk = make_desk()
    lines = [json.dumps({"id": f"i{number}", "text": "x"}).encode() for number in range(1, 10_001)]
    lines[7320] = lines[7320][:-3]
    ran = desk.start("submit", write(desk, b"\n".join(lines)), code=2)
    assert "line 7321" in ran.err
    nothing_happened(desk)


def test_skip_bad_sends_the_rest(make_desk: MakeDesk) -> None:
    """With --skip-bad the good items go and the bad ones are in errors.jsonl (field report 3)."""
    desk = make_desk(speed=36_000)
    data = GOOD + b'[1, 2]\nnull\n{"id": "b", "text": "y"}\n{"id": "a", "text": "again"}\n{"nothing": 1}\n'
    desk.start("run", write(desk, data), "--skip-bad", code=3)
    assert desk.balanced()["counts"] == {"planned": 6, "succeeded": 2, "failed": 4, "open": 0}
    messages = " ".join(line["error"]["message"] for line in desk.lines("errors.jsonl"))
    for place in ("line 2", "line 3", "line 5", "line 6"):
        assert place in messages


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--max-requests", "-5"], "max-requests"),
        (["--max-tokens", "0"], "max-tokens"),
        (["--deadline", "soon"], "deadline"),
        (["--max-bytes", "much"], "max-bytes"),
        (["--param", "top_p"], "--param"),
        (["--param", "stop=[1"], "--param stop"),
        (["--var", "x"], "--var"),
        (["--var", "x=@missing.txt"], "missing.txt"),
        (["--name", "../../evil"], "name"),
        (["--name", "a/b"], "name"),
        (["--param", "stream=true"], "stream"),
    ],
)
def test_bad_options_are_refused(make_desk: MakeDesk, arguments: list[str], said: str) -> None:
    """A bad value is refused before anything is read or sent."""
    desk = make_desk()
    ran = desk.start("submit", write(desk, GOOD), *arguments, code=2)
    assert said in ran.err
    nothing_happened(desk)


def test_no_such_file(make_desk: MakeDesk) -> None:
    """A missing input is named."""
    desk = make_desk()
    ran = desk.start("submit", str(desk.folder / "nowhere.jsonl"), code=2)
    assert "nowhere.jsonl" in ran.err
    nothing_happened(desk)


def test_an_unknown_placeholder_is_named_with_its_item(make_desk: MakeDesk) -> None:
    """A placeholder that is in no item: which one, which item."""
    desk = make_desk()
    prompt = desk.folder / "prompt.txt"
    items = write(desk, GOOD)
    prompt.write_text("Sort: {{ txet }}", "utf-8")
    ran = desk(
        "submit", items, "--provider", "anthropic", "--model", "m", "--prompt", str(prompt), "--name", "r", code=2
    )
    assert "txet" in ran.err
    assert "line 1" in ran.err


def test_a_broken_template_names_its_line(make_desk: MakeDesk) -> None:
    """A syntax error in the template is not an item's fault."""
    desk = make_desk()
    prompt = desk.folder / "prompt.txt"
    items = write(desk, GOOD)
    prompt.write_text("one\n{{ text \n", "utf-8")
    ran = desk(
        "submit", items, "--provider", "anthropic", "--model", "m", "--prompt", str(prompt), "--name", "r", code=2
    )
    assert "prompt" in ran.err
    nothing_happened(desk)


@pytest.mark.parametrize(("key", "said"), [("", "is not set"), ("sk-a\nb", "line break"), ("sk-é", "no key has")])
def test_a_key_that_cannot_be_used_is_named(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, key: str, said: str
) -> None:
    """A missing or unreadable key is refused before anything is made, and is not shown."""
    desk = make_desk()
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    ran = desk.start("submit", write(desk, GOOD), code=2)
    assert "ANTHROPIC_API_KEY" in ran.err
    assert said in ran.err
    assert not key or key not in ran.err
    nothing_happened(desk)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (["--model", "claude-opus-4-1"], "model"),
        (["--max-tokens", "99"], "max_tokens"),
        (["--param", 'stop_sequences=["x"]'], "params"),
        (["--max-requests", "7"], "max_requests"),
    ],
)
def test_something_different_under_a_taken_name_is_refused(make_desk: MakeDesk, change: list[str], field: str) -> None:
    """The refusal names the field with its old and new value (field reports 174, 175)."""
    desk = make_desk()
    items = desk.items(3)
    desk.start("submit", items)
    ran = desk.start("submit", items, *change, code=2)
    assert field in ran.err
    assert "was" in ran.err
    assert "--new" in ran.err
    assert desk.creates() == 1


def test_a_changed_prompt_or_input_under_a_taken_name_is_refused(make_desk: MakeDesk) -> None:
    """A changed line in the prompt or the input is noticed."""
    desk = make_desk()
    items = desk.items(3)
    desk.start("submit", items)
    Path(items).write_text('{"id": "other", "text": "x"}\n', "utf-8")
    assert "input" in desk.start("submit", items, code=2).err
    desk.items(3)
    desk.start("submit", items)
    other = desk.folder / "other.txt"
    other.write_text("Answer that: {{ text }}\n", "utf-8")
    assert "prompt" in desk.start("submit", items, "--prompt", str(other), code=2).err
    assert desk.creates() == 1


def test_commands_that_read_make_no_state(make_desk: MakeDesk) -> None:
    """`status` and `poll` without a state file say so and create nothing."""
    desk = make_desk()
    for command in (["status"], ["poll"], ["show", "r"], ["results", "r"]):
        assert "state" in desk(*command, code=2).err
    nothing_happened(desk)


def test_deep_nesting_is_a_bad_record(make_desk: MakeDesk) -> None:
    """A line nested thousands deep is named, not a traceback."""
    desk = make_desk()
    ran = desk.start("submit", write(desk, b'{"id": "a", "text": ' + b"[" * 5000 + b"]" * 5000 + b"}\n"), code=2)
    assert "line 1" in ran.err
    nothing_happened(desk)


@pytest.mark.parametrize("verb", ["plan", "submit", "run", "fanout"])
@pytest.mark.parametrize(
    "url",
    [
        "http://user:hunter2@127.0.0.1:9/v1",
        "http://127.0.0.1:9/v1?key=hunter2",
        "http://127.0.0.1:9/v1#hunter2",
        "127.0.0.1:9/hunter2",
        "ftp://hunter2/",
        "http://hunter2:port/",
    ],
)
def test_an_address_with_a_secret_is_refused_first(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, verb: str, url: str
) -> None:
    """What would be stored with the run and sent beside the key: exit 2, nothing made, the secret not repeated."""
    desk = make_desk()
    items, prompt = desk.items(1), desk.prompt
    made = set(desk.folder.rglob("*"))
    arguments = (verb, items, "--provider", "openai", "--model", "m", "--prompt", prompt)
    monkeypatch.chdir(desk.folder)
    given = desk(*arguments, "--base-url", url, code=2)
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    by_variable = desk(*arguments, code=2)
    assert "--base-url" in given.err
    assert "OPENAI_BASE_URL" in by_variable.err
    assert "hunter2" not in given.err + by_variable.err
    assert set(desk.folder.rglob("*")) == made


def test_a_prompt_without_a_field_is_pointed_out(make_desk: MakeDesk) -> None:
    """Single braces are plain text, and thousands of equal requests are seldom meant; a system prompt may differ."""
    desk = make_desk()
    items = desk.items(2)
    prompt = desk.folder / "plain.txt"
    prompt.write_text("Ticket: {text}", "utf-8")
    arguments = (items, "--provider", "anthropic", "--model", "claude-sonnet-4-5", "--prompt", str(prompt))
    assert "every request is the same" in desk("plan", *arguments).out
    assert "every request is the same" not in desk("plan", *arguments, "--system", desk.prompt).out
    said = desk("submit", *arguments, "--name", "r", "--out", str(desk.folder / "out")).err
    assert "every request is the same" in said


def test_the_same_question_under_another_name_is_pointed_out(make_desk: MakeDesk) -> None:
    """A nightly name finds last night's file again: it is sent, but not in silence."""
    desk = make_desk()
    items = desk.items(2)
    assert "paid twice" not in desk.start("submit", items).err
    assert "paid twice" not in desk.start("submit", items).err
    again = ("--out", str(desk.folder / "again"))
    assert "run r asks the same of the same input already" in desk.start("submit", items, *again, name="r2").err
    other = ("--max-tokens", "9", "--out", str(desk.folder / "other"))
    assert "paid twice" not in desk.start("submit", items, *other, name="r3").err


def test_a_plan_of_nothing_has_no_cost(make_desk: MakeDesk) -> None:
    """Where no record can be sent the model is not the reason."""
    desk = make_desk()
    items = desk.items([{"text": "no id"}])
    arguments = (items, "--provider", "anthropic", "--model", "claude-sonnet-4-5", "--prompt", desk.prompt)
    assert "cost" not in desk("plan", *arguments, code=2).out


def test_accepting_makes_nothing(make_desk: MakeDesk) -> None:
    """A run that is nowhere leaves no state file behind."""
    desk = make_desk()
    assert "no state file" in desk("accept", "x", code=2).err
    assert not list(desk.folder.iterdir())
