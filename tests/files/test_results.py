"""Lines of the two result files, as the charter has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.model import Lane, Outcome, Usage
from batchctl.files.results import error_line, result_line


def result(text: str | None, output: Any = None, id_: str = "a") -> bytes:
    """A result line with this text."""
    return result_line(
        id=id_,
        output=output,
        text=text,
        stop_reason="end_turn",
        model="m",
        usage=Usage(10, 20, 3, 4),
        cost_usd=0.00125,
        lane=Lane.BATCH,
        batch_id="b1",
        round=1,
        provider="anthropic",
    )


def error(message: str, text: str | None = None) -> bytes:
    """An error line with this message."""
    return error_line(
        id=None,
        outcome=Outcome.ERRORED,
        error_type="bad_input",
        error_code=None,
        error_message=message,
        attempts=2,
        batch_id=None,
        round=0,
        text=text,
    )


def test_a_result_line_is_the_charters() -> None:
    """Keys, their order and their values."""
    assert result("hi", {"k": [1, None]}) == (
        b'{"id":"a","output":{"k":[1,null]},"text":"hi","stop_reason":"end_turn","model":"m",'
        b'"usage":{"input_tokens":10,"output_tokens":20,"cached_input_tokens":3},"cost_usd":0.00125,'
        b'"lane":"batch","batch_id":"b1","round":1,"provider":"anthropic"}'
    )


def test_an_error_line_is_the_charters() -> None:
    """Keys, their order and their values; an id that could not be read is null."""
    assert error("no id") == (
        b'{"id":null,"outcome":"errored","error":{"type":"bad_input","code":null,"message":"no id"},'
        b'"attempts":2,"batch_id":null,"round":0,"text":null}'
    )


@given(st.text())
def test_any_text_stays_one_line(text: str) -> None:
    """Whatever a model says, no reader of lines finds a break in it, and it reads back the same (field report 111)."""
    good, bad = result(text, {text: text}, text), error(text, text)
    for line in (good, bad):
        assert (line.decode() + ".").splitlines() == [line.decode() + "."]
    read = json.loads(good)
    assert (read["id"], read["text"], read["output"]) == (text, text, {text: text})
    read = json.loads(bad)
    assert (read["text"], read["error"]["message"]) == (text, text)


@pytest.mark.parametrize("line", [result("a \ud83d b", ["\udc00", {"\ud83d": 1}]), error("a \ud83d b", "\ud83d")])
def test_lone_surrogates_are_replaced(line: bytes) -> None:
    """A line that could not be encoded is written all the same (field report 15)."""
    assert b"\xef\xbf\xbd" in line
    assert "a \ufffd b" in line.decode()
    json.loads(line)
