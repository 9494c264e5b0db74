"""OpenAI's requests and results as pure data."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.errors import InputError
from batchctl.core.model import ErrorKind, Outcome, Usage
from batchctl.providers.openai_format import CHAT, EMBEDDINGS, RESPONSES, OpenAIFormat
from batchctl.providers.openai_results import classify_error, parse_error
from tests.providers.test_anthropic_format import strings

FORM = OpenAIFormat()
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 2,
    "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 3},
}


def made(endpoint: str = CHAT, **more: Any) -> dict[str, Any]:
    """A body for one prompt."""
    wanted: dict[str, Any] = {"model": "m", "prompt": "P!", "system": "S!", "max_tokens": 5, "params": {}} | more
    return FORM.body(endpoint=endpoint, **wanted)


def line(body: Any, status: Any = 200, error: Any = None, custom_id: Any = "i1") -> bytes:
    """A result line."""
    response = {"status_code": status, "request_id": "r", "body": body}
    return json.dumps({"id": "x", "custom_id": custom_id, "response": response, "error": error}).encode()


def chat(message: Any, finish_reason: str = "stop") -> dict[str, Any]:
    """A chat completion with one message."""
    return {"model": "m", "choices": [{"message": message, "finish_reason": finish_reason}], "usage": USAGE}


@pytest.mark.parametrize(("endpoint", "limit"), [(CHAT, "max_completion_tokens"), (RESPONSES, "max_output_tokens")])
def test_prompt_and_system_appear_once(endpoint: str, limit: str) -> None:
    """Each endpoint has its own words for prompt, system and limit; never `max_tokens` (field report 42)."""
    body = made(endpoint)
    assert strings(body).count("P!") == strings(body).count("S!") == 1
    assert body[limit] == 5
    assert "max_tokens" not in body
    assert FORM.problems(body, endpoint) == []
    assert limit not in made(endpoint, max_tokens=None)


def test_embeddings_take_a_prompt_only() -> None:
    """A system prompt or a token limit has no place in an embedding and is not dropped in silence."""
    assert made(EMBEDDINGS, system=None, max_tokens=None) == {"model": "m", "input": "P!"}
    for more in ({"system": None}, {"max_tokens": None}):
        with pytest.raises(InputError):
            made(EMBEDDINGS, **more)


def test_no_prompt_for_other_endpoints() -> None:
    """Endpoints with a shape of their own take finished requests only."""
    with pytest.raises(InputError, match="/v1/moderations"):
        made("/v1/moderations")


def test_params_go_over_everything() -> None:
    """Any provider parameter can be set, also one we set ourselves."""
    assert made(params={"max_completion_tokens": 9, "seed": 1})["max_completion_tokens"] == 9


@given(st.from_regex(FORM.limits().custom_id_pattern, fullmatch=True), st.sampled_from([CHAT, RESPONSES, EMBEDDINGS]))
def test_head_and_body_make_a_line(custom_id: str, endpoint: str) -> None:
    """The line has exactly OpenAI's shape and parses back to its parts (field report 36)."""
    parsed = json.loads(FORM.head(custom_id, endpoint) + b'{"model":"m"}' + b"}")
    assert parsed == {"custom_id": custom_id, "method": "POST", "url": endpoint, "body": {"model": "m"}}
    assert FORM.parse_request(parsed) == (custom_id, endpoint, {"model": "m"})


@pytest.mark.parametrize(
    ("change", "endpoint", "word"),
    [
        ({"stream": True}, CHAT, "stream"),
        ({"n": 2}, CHAT, '"n"'),
        ({"model": None}, CHAT, "model"),
        ({"extra_body": {"a": 1}}, CHAT, "extra_body"),
        ({"extra_headers": {}}, CHAT, "extra_headers"),
        ({"messages": []}, CHAT, "messages"),
        ({"background": True}, RESPONSES, "background"),
        ({"input": ""}, RESPONSES, "input"),
        ({"input": []}, EMBEDDINGS, "input"),
        ({}, "/v1/messages", "/v1/messages"),
        ({}, "/chat/completions", "/chat/completions"),
    ],
)
def test_bodies_the_provider_would_refuse(change: dict[str, Any], endpoint: str, word: str) -> None:
    """Each is one problem that names the field and a way out (field reports 40 and 44)."""
    problems = FORM.problems({"model": "m", "messages": [1], "input": "x"} | change, endpoint)
    assert len(problems) == 1
    assert word in problems[0]


def test_a_stored_prompt_needs_no_input() -> None:
    """A response may name a prompt template instead of an input."""
    assert FORM.problems({"model": "m", "prompt": {"id": "p"}}, RESPONSES) == []


def test_a_success_line() -> None:
    """Text, stop reason, model, and cached tokens inside the input."""
    got = FORM.parse_result(line(chat({"content": "hi", "refusal": None})))
    assert (got.custom_id, got.outcome, got.text, got.stop_reason, got.model) == (
        "i1", Outcome.SUCCEEDED, "hi", "stop", "m",
    )  # fmt: skip
    assert got.usage == Usage(9, 2, 4, 3)


@pytest.mark.parametrize(
    ("body", "text", "stop_reason"),
    [
        (chat({"content": None}), None, "stop"),
        (chat({"content": "half {", "refusal": ""}, "length"), "half {", "length"),
        (chat({"content": None, "refusal": "I cannot"}), "I cannot", "refusal"),
        (chat({"content": None}, "content_filter"), None, "content_filter"),
        (chat({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}), "ab", "stop"),
        (chat({"content": [{"type": "refusal", "refusal": "no"}]}), "no", "refusal"),
        (
            chat({"content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a":1}'}}]}, "tool_calls"),
            '{"a":1}', "tool_calls",
        ),
        (chat({"content": None, "tool_calls": []}), None, "stop"),
        ({"choices": [{"text": "old", "finish_reason": "stop"}]}, "old", "stop"),
        (
            {"status": "completed", "output": [
                {"type": "reasoning", "summary": []},
                {"type": "message", "content": [{"type": "output_text", "text": "a"}]},
                {"type": "message", "content": [{"type": "output_text", "text": "b"}]},
            ]},
            "ab", "completed",
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}, "output": [
                {"type": "message", "content": [{"type": "output_text", "text": "cu"}]}]},
            "cu", "max_output_tokens",
        ),
        (
            {"status": "completed", "output": [{"type": "message", "content": [{"type": "refusal", "refusal": "no"}]}]},
            "no", "refusal",
        ),
        ({"status": "completed", "output": [{"type": "function_call", "arguments": "{}"}]}, "{}", "completed"),
        ({"status": "completed", "output": []}, None, "completed"),
        ({"data": [{"embedding": [0.5, -1]}], "usage": {"prompt_tokens": 1}}, "[0.5, -1]", None),
        ({"data": [{"embedding": [1]}, {"embedding": [2]}]}, "[[1],[2]]", None),
        ({"results": [{"flagged": False}]}, '{"results": [{"flagged": false}]}', None),
    ],
)  # fmt: skip
def test_answers_of_every_endpoint(body: Any, text: str | None, stop_reason: str | None) -> None:
    """No shape of a success crashes or loses what was answered, in either lane (field reports 116 and 118)."""
    batch = FORM.parse_result(line(body))
    assert (batch.outcome, batch.text, batch.stop_reason) == (Outcome.SUCCEEDED, text, stop_reason)
    assert FORM.parse_completion("i1", json.dumps(body).encode()) == batch


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "empty object"),
        ({"choices": []}, "'choices' is empty"),
        ({"choices": None, "model": "m"}, "'choices' is empty"),
        ({"choices": [{"message": None, "finish_reason": "stop"}]}, "no message"),
        ({"data": []}, "'data' is empty"),
        ({"data": [{"embedding": None}]}, "'data' is empty"),
        ({"output": None, "status": "completed"}, "'output' is empty"),
        *(({"output": [], "status": status}, status) for status in ("queued", "in_progress", "cancelled")),
    ],
)
def test_a_success_without_an_answer_is_none(body: Any, reason: str) -> None:
    """It may be billed, so its item fails with what came and is not asked again."""
    batch = FORM.parse_result(line(body))
    assert (batch.outcome, batch.error and batch.error.kind) == (Outcome.INVALID, ErrorKind.PERMANENT)
    assert batch.error
    assert reason in batch.error.message
    assert json.loads(batch.text or "") == body
    assert FORM.parse_completion("i1", json.dumps(body).encode()) == batch


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (None, None),
        ({}, None),
        ({"prompt_tokens": 5, "total_tokens": 5}, Usage(5)),
        ({"input_tokens": 5, "output_tokens": 6, "input_tokens_details": {"cached_tokens": 2}}, Usage(5, 6, 2)),
        ({"prompt_tokens": 5.0, "completion_tokens": None, "prompt_tokens_details": None}, Usage(5)),
    ],
)
def test_usage_in_all_forms(usage: Any, counted: Usage | None) -> None:
    """Chat, responses and embeddings name their tokens differently; missing ones are no reason to lose an answer."""
    assert FORM.parse_result(line(chat({"content": "x"}) | {"usage": usage})).usage == counted


ERROR = {"message": "too long", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}


@pytest.mark.parametrize(
    ("raw", "outcome", "kind", "message"),
    [
        (line({"error": ERROR}, 400), Outcome.ERRORED, ErrorKind.PERMANENT, "too long"),
        (line({"error": ERROR}, 200), Outcome.ERRORED, ErrorKind.PERMANENT, "too long"),
        (line({"error": "boom"}, 500), Outcome.ERRORED, ErrorKind.RETRYABLE, "boom"),
        (line({}, 400), Outcome.ERRORED, ErrorKind.PERMANENT, "status 400 without a reason"),
        (line(None, 0), Outcome.ERRORED, ErrorKind.RETRYABLE, "status 0 without a reason"),
        (line("", 0), Outcome.ERRORED, ErrorKind.RETRYABLE, "status 0 without a reason"),
        (line("upstream died", 502), Outcome.ERRORED, ErrorKind.RETRYABLE, "upstream died"),
        (line(None, 200), Outcome.ERRORED, ErrorKind.RETRYABLE, "an answer without a body"),
        (
            line({"status": "failed", "error": {"message": "m", "code": "server_error"}}),
            Outcome.ERRORED,
            ErrorKind.RETRYABLE,
            "m",
        ),
        (line({"status": "failed"}), Outcome.ERRORED, ErrorKind.RETRYABLE, "the response has status failed"),
        (
            line({"error": {"message": "q", "type": "insufficient_quota"}}, 429),
            Outcome.ERRORED,
            ErrorKind.SYSTEMIC,
            "q",
        ),
        (
            b'{"custom_id":"i1","response":null,"error":{"code":"batch_expired","message":"late"}}',
            Outcome.EXPIRED,
            ErrorKind.RETRYABLE,
            "late",
        ),
        (
            b'{"custom_id":"i1","response":null,"error":{"code":"batch_cancelled","message":"c"}}',
            Outcome.CANCELED,
            ErrorKind.RETRYABLE,
            "c",
        ),
        (b'{"custom_id":"i1","response":null,"error":"boom"}', Outcome.ERRORED, ErrorKind.RETRYABLE, "boom"),
        (
            b'{"custom_id":"i1","response":null,"error":null}',
            Outcome.ERRORED,
            ErrorKind.RETRYABLE,
            "a line with neither response nor error",
        ),
        (b'{"custom_id":"i1"}', Outcome.ERRORED, ErrorKind.RETRYABLE, "a line with neither response nor error"),
    ],
)
def test_lines_that_are_no_success(raw: bytes, outcome: Outcome, kind: ErrorKind, message: str) -> None:
    """Success needs a 2xx and a body without an error, in whichever file (field reports 84, 99, 100 and 102)."""
    got = FORM.parse_result(raw)
    assert got.outcome is outcome
    assert got.error is not None
    assert (got.error.kind, got.error.message) == (kind, message)


@pytest.mark.parametrize("empty", [{}, "", None])
def test_an_empty_error_is_none(empty: Any) -> None:
    """A success with an empty error object beside or inside it is a success, not one to buy again."""
    assert FORM.parse_result(line(chat({"content": "x"}) | {"error": empty}, error=empty)).outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"response":null}', line({}, custom_id=""), line({}, custom_id=7), line([1]), b"junk"]
)
def test_lines_that_say_nothing_usable(raw: bytes) -> None:
    """They raise ValueError with a reason and nothing else (field report 102)."""
    with pytest.raises(ValueError, match=r"\w"):
        FORM.parse_result(raw)


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    """Whatever the model wrote is what we read."""
    assert FORM.parse_result(line(chat({"content": text}))).text == text


@pytest.mark.parametrize(
    ("type_", "code", "status", "message", "kind"),
    [
        ("invalid_request_error", None, 400, "bad", ErrorKind.PERMANENT),
        ("invalid_request_error", "unsupported_parameter", 400, "x", ErrorKind.PERMANENT),
        ("invalid_request_error", None, 401, "You didn't provide an API key", ErrorKind.SYSTEMIC),
        ("invalid_request_error", "invalid_api_key", None, "x", ErrorKind.SYSTEMIC),
        ("invalid_request_error", "model_not_found", 404, "x", ErrorKind.SYSTEMIC),
        ("invalid_request_error", None, 404, "The model `x` does not exist", ErrorKind.SYSTEMIC),
        ("invalid_request_error", None, 404, "no such response", ErrorKind.PERMANENT),
        ("insufficient_quota", "credit_balance_exhausted", 429, "x", ErrorKind.SYSTEMIC),
        ("insufficient_quota", "a_new_code", 429, "x", ErrorKind.SYSTEMIC),
        ("requests", "rate_limit_exceeded", 429, "x", ErrorKind.RETRYABLE),
        ("tokens", None, 429, "x", ErrorKind.RETRYABLE),
        ("server_error", "slow_down", 503, "x", ErrorKind.RETRYABLE),
        ("invalid_request_error", None, 500, "x", ErrorKind.RETRYABLE),
        (None, None, 0, "", ErrorKind.RETRYABLE),
        (None, None, None, "", ErrorKind.RETRYABLE),
    ],
)
def test_what_errors_ask_for(
    type_: str | None, code: str | None, status: int | None, message: str, kind: ErrorKind
) -> None:
    """OpenAI's table, by code, message, status and type (field reports 42 and 145)."""
    assert classify_error(type_, code, status, message) is kind


@pytest.mark.parametrize("raw", [b"<html>", b"", b"null", b"{}", b'"text"', b'{"error":null}', b'{"error":""}'])
def test_no_envelope(raw: bytes) -> None:
    """A body that is no error envelope gives none."""
    assert parse_error(raw, 500) is None


@pytest.mark.parametrize(
    ("request_line", "reason"),
    [
        ({"params": {}}, "custom_id"),
        ({"custom_id": 7, "params": {}}, "custom_id"),
        ({"custom_id": "a"}, "neither"),
        ({"custom_id": "a", "body": {}}, "url"),
        ({"custom_id": "a", "url": "v1/x", "body": {}}, "url"),
        ({"custom_id": "a", "method": "GET", "url": "/v1/x", "body": {}}, "method"),
        ({"custom_id": "a", "url": "/v1/x", "body": []}, "body"),
        ({"custom_id": "a", "params": None}, "params"),
    ],
)
def test_finished_requests_that_are_none(request_line: dict[str, Any], reason: str) -> None:
    """The reason names the field."""
    with pytest.raises(ValueError, match=reason):
        FORM.parse_request(request_line)
