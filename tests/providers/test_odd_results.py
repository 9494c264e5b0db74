"""Result lines with one wrongly typed field: the answer was paid for, so it is read all the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchctl.core.model import Answer, Outcome, Usage
from batchctl.providers.decoding import MOST_TOKENS, UnreadableResultError
from batchctl.providers.registry import request_format

ANTHROPIC = request_format("anthropic")
OPENAI = request_format("openai")


def anthropic(**message: Any) -> bytes:
    """A line of a succeeded request."""
    whole = {
        "content": [{"type": "text", "text": "yes"}],
        "stop_reason": "end_turn",
        "model": "m",
        "usage": {"input_tokens": 12, "output_tokens": 3},
    }
    return json.dumps({"custom_id": "a", "result": {"type": "succeeded", "message": whole | message}}).encode()


def openai(status_code: Any = 200, **body: Any) -> bytes:
    """A line of a request that was answered."""
    whole = {
        "choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}],
        "model": "m",
        "usage": {"prompt_tokens": 12, "completion_tokens": 3},
    }
    response = {"status_code": status_code, "body": whole | body}
    return json.dumps({"custom_id": "a", "response": response, "error": None}).encode()


def deep(line: bytes) -> bytes:
    """A line nested far deeper than any reader goes."""
    return line.replace(b'"DEEP"', b"[" * 3_000 + b"]" * 3_000)


def calling(arguments: Any) -> list[dict[str, Any]]:
    """Choices with one tool call."""
    return [{"message": {"content": None, "tool_calls": [{"function": {"arguments": arguments}}]}}]


@pytest.mark.parametrize(
    ("line", "usage", "stop_reason", "model"),
    [
        (anthropic(usage={"input_tokens": "12", "output_tokens": 3}), Usage(12, 3), "end_turn", "m"),
        (anthropic(usage={"input_tokens": [12], "output_tokens": 3}), Usage(0, 3), "end_turn", "m"),
        (anthropic(usage="12"), None, "end_turn", "m"),
        (anthropic(stop_reason=5), Usage(12, 3), None, "m"),
        (anthropic(model=["m"]), Usage(12, 3), "end_turn", None),
        (anthropic(usage={"input_tokens": -5, "output_tokens": 3}), Usage(0, 3), "end_turn", "m"),
        (anthropic(usage={"input_tokens": 2**63, "output_tokens": 1e300}), None, "end_turn", "m"),
        (anthropic(usage={"input_tokens": MOST_TOKENS, "output_tokens": 3}), Usage(MOST_TOKENS, 3), "end_turn", "m"),
    ],
)
def test_an_odd_side_field_of_anthropic(line: bytes, usage: Usage | None, stop_reason: str, model: str) -> None:
    """Usage, stop reason and model may be anything; a count that cannot be true is none."""
    answer = ANTHROPIC.parse_result(line)
    assert answer == Answer("a", Outcome.SUCCEEDED, "yes", stop_reason, model, usage)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (openai(usage={"prompt_tokens": "12", "completion_tokens": 3}), "yes"),
        (openai(usage={"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": []}), "yes"),
        (openai(status_code="200"), "yes"),
        (openai(status_code=None), "yes"),
        (openai(status_code={"value": 200}), "yes"),
        (openai(choices=calling({"a": 1})), '{"a": 1}'),
        (openai(choices=calling('{"a": 1}')), '{"a": 1}'),
        (openai(choices=None, output=[{"type": "message", "content": "yes"}]), "yes"),
        (openai(choices=None, output=[{"type": "function_call", "arguments": {"a": 1}}]), '{"a": 1}'),
        (openai(choices=None, output=[{"type": "function_call", "arguments": '{"a": 1}'}]), '{"a": 1}'),
    ],
)
def test_an_odd_side_field_of_openai(line: bytes, text: str) -> None:
    """Usage, the status and the arguments of a call may be written otherwise."""
    answer = OPENAI.parse_result(line)
    assert (answer.outcome, answer.text, answer.usage) == (Outcome.SUCCEEDED, text, Usage(12, 3))


@pytest.mark.parametrize(
    ("form", "line"),
    [
        (ANTHROPIC, anthropic(content={"text": "yes"})),
        (ANTHROPIC, anthropic(content=[{"type": "text", "text": 5}])),
        (ANTHROPIC, anthropic(error=[])),
        (ANTHROPIC, b'{"custom_id":"a"}'),
        (ANTHROPIC, anthropic()[:-9]),
        (ANTHROPIC, deep(anthropic(content="DEEP"))),
        (OPENAI, openai(choices="yes")),
        (OPENAI, openai(choices=[{"message": {"content": 5}}])),
        (OPENAI, openai()[:-9]),
        (OPENAI, deep(openai(more="DEEP"))),
    ],
)
def test_an_answer_that_cannot_be_read_tells_whose_it_is(form: Any, line: bytes) -> None:
    """Its item must not count as missing, since missing ones are bought again."""
    with pytest.raises(UnreadableResultError) as caught:
        form.parse_result(line)
    assert caught.value.custom_id == "a"


@pytest.mark.parametrize("form", [ANTHROPIC, OPENAI])
def test_a_byte_order_mark_hides_no_answer(form: Any) -> None:
    """A proxy, or an editor, may put one before the first line."""
    whole = anthropic(content=[{"type": "text", "text": "yes"}]) if form is ANTHROPIC else openai()
    assert form.parse_result(b"\xef\xbb\xbf" + whole) == form.parse_result(whole)


@pytest.mark.parametrize("line", [b"", b"nonsense", b'{"custom_id": 5}', b'{"custom_id": "', b'{"custom_id": "\\x"}'])
def test_a_line_of_nobody(line: bytes) -> None:
    """Where no id can be told, none is made up."""
    for form in (ANTHROPIC, OPENAI):
        with pytest.raises(UnreadableResultError) as caught:
            form.parse_result(line)
        assert caught.value.custom_id is None
