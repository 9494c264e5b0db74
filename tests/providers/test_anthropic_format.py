"""Anthropic's requests and results as pure data."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.model import ErrorKind, Outcome, Usage
from batchctl.providers.anthropic_format import AnthropicFormat, classify_error, parse_error

FORM = AnthropicFormat()
MESSAGE = {
    "type": "message",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "model": "m",
    "usage": {"input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 30, "cache_read_input_tokens": 400},
}


def body(**more: Any) -> dict[str, Any]:
    """A body that has no problem, changed."""
    plain = FORM.body(endpoint="/v1/messages", model="m", prompt="p", system=None, max_tokens=5, params={})
    return {name: value for name, value in (plain | more).items() if value is not ...}


def line(result: Any, custom_id: Any = "i1") -> bytes:
    """A result line."""
    return json.dumps({"custom_id": custom_id, "result": result}).encode()


def succeeded(**message: Any) -> bytes:
    """A success line with some of the message changed."""
    return line({"type": "succeeded", "message": MESSAGE | message})


def strings(value: Any) -> list[str]:
    """Every string value in a JSON value."""
    if isinstance(value, dict):
        return [text for part in value.values() for text in strings(part)]
    if isinstance(value, list):
        return [text for part in value for text in strings(part)]
    return [value] if isinstance(value, str) else []


def test_prompt_and_system_appear_once() -> None:
    """The planner splices each item's prompt into one serialized body."""
    made = FORM.body(
        endpoint="/v1/messages", model="m", prompt="P!", system="S!", max_tokens=None, params={"metadata": {"a": "b"}}
    )
    assert strings(made).count("P!") == strings(made).count("S!") == 1
    assert "max_tokens" not in made
    assert made["metadata"] == {"a": "b"}


def test_params_go_over_everything() -> None:
    """Any provider parameter can be set, also one we set ourselves."""
    assert (
        FORM.body(endpoint="/v1/messages", model="m", prompt="p", system=None, max_tokens=5, params={"max_tokens": 7})[
            "max_tokens"
        ]
        == 7
    )


@given(st.from_regex(FORM.limits().custom_id_pattern, fullmatch=True))
def test_head_and_body_make_a_line(custom_id: str) -> None:
    """The line is head + body + `}` and parses back to its parts."""
    made = json.loads(FORM.head(custom_id, "/v1/messages") + b'{"model":"m"}' + b"}")
    assert made == {"custom_id": custom_id, "params": {"model": "m"}}
    assert FORM.parse_request(made) == (custom_id, "/v1/messages", {"model": "m"})


@pytest.mark.parametrize("custom_id", ["", "a/b", "a b", "é", "a" * 65, "a.b", "a\n"])
def test_ids_the_provider_refuses(custom_id: str) -> None:
    """The pattern is Anthropic's own rule (field report 24)."""
    assert not re.fullmatch(FORM.limits().custom_id_pattern, custom_id)


def test_a_good_body_has_no_problem() -> None:
    """Nothing is refused that the provider takes."""
    assert FORM.problems(body(stream=False, system="s", thinking={"type": "adaptive"}), "/v1/messages") == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"temperature": 1}, "temperature"),
        ({"top_p": 1.0}, "top_p"),
        ({"top_k": 5}, "top_k"),
        ({"stream": True}, "stream"),
        ({"speed": "fast"}, "speed"),
        ({"betas": ["x"]}, "header"),
        ({"extra_body": {}}, "extra_body"),
        ({"extra_headers": {}}, "extra_headers"),
        ({"max_tokens": ...}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": ...}, "messages"),
        ({"model": ""}, "model"),
        ({"model": ...}, "model"),
    ],
)
def test_bodies_the_provider_would_refuse(change: dict[str, Any], word: str) -> None:
    """Each is one problem that names the field and a way out (field reports 40, 41 and 42)."""
    problems = FORM.problems(body(**change), "/v1/messages")
    assert len(problems) == 1
    assert word in problems[0]


def test_another_endpoint_is_refused() -> None:
    """Anthropic batches have one endpoint."""
    assert FORM.problems(body(), "/v1/chat/completions")


def test_a_success_line() -> None:
    """Text, stop reason, model, and the disjoint input counts as one total."""
    got = FORM.parse_result(succeeded())
    assert (got.custom_id, got.outcome, got.text, got.stop_reason, got.model) == (
        "i1", Outcome.SUCCEEDED, "hi", "end_turn", "m",
    )  # fmt: skip
    assert got.usage == Usage(431, 2, 400, 30)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "tool_use", "name": "t", "input": {"k": [1, "é"]}}], '{"k": [1, "é"]}'),
        ([{"type": "text", "text": "a"}, {"type": "tool_use", "input": {}}], "a"),
        ([{"type": "server_tool_use", "input": {"q": 1}}], ""),
        ([], ""),
        (None, None),
        ("plain", "plain"),
        ([{"type": "text", "text": "a\u2028b"}], "a\u2028b"),
        ([{"type": "text", "text": None}], ""),
    ],
)
def test_content_of_every_shape(content: Any, text: str | None) -> None:
    """No shape of content crashes; a tool call gives its input (field report 116)."""
    raw = json.dumps(
        {"custom_id": "i1", "result": {"type": "succeeded", "message": MESSAGE | {"content": content}}},
        ensure_ascii=False,
    )
    assert FORM.parse_result(raw.encode()).text == text


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "pause_turn", "model_context_window_exceeded", None])
def test_stop_reasons_pass_through(reason: str | None) -> None:
    """A cut or refused answer is a success with the provider's own word (field report 118)."""
    assert FORM.parse_result(succeeded(stop_reason=reason)).stop_reason == reason


@pytest.mark.parametrize("usage", [None, {}, {"input_tokens": None, "output_tokens": 3.0}])
def test_odd_usage(usage: Any) -> None:
    """Missing counts are no reason to lose an answer."""
    got = FORM.parse_result(succeeded(usage=usage))
    assert got.text == "hi"
    assert (got.usage is None) == (not usage)


@pytest.mark.parametrize("broken", [rb'"half \ud83d"', b'"cut \xf0\x9f"'])
def test_an_answer_cut_inside_an_emoji_is_kept(broken: bytes) -> None:
    """Half a surrogate pair or a cut UTF-8 character becomes U+FFFD, not a lost answer (field report 15)."""
    raw = succeeded().replace(b'"hi"', broken)
    assert "\ufffd" in (FORM.parse_result(raw).text or "")


@pytest.mark.parametrize(
    ("error", "kind", "message", "code"),
    [
        (
            {"type": "error", "error": {"type": "invalid_request_error", "message": "deep"}},
            ErrorKind.PERMANENT, "deep", None,
        ),
        (
            {"type": "error", "error": {"type": "api_error", "message": "x", "details": {"error_code": "c"}}},
            ErrorKind.RETRYABLE, "x", "c",
        ),
        ({"type": "overloaded_error", "message": "flat"}, ErrorKind.RETRYABLE, "flat", None),
        ("boom", ErrorKind.RETRYABLE, "boom", None),
        (None, ErrorKind.RETRYABLE, "the provider gave no reason", None),
        (
            {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low to access"}},
            ErrorKind.SYSTEMIC, "Your credit balance is too low to access", None,
        ),
    ],
)  # fmt: skip
def test_the_deepest_error_counts(error: Any, kind: ErrorKind, message: str, code: str | None) -> None:
    """Errors are nested twice, sometimes once, sometimes a string (field reports 43, 71 and 102)."""
    got = FORM.parse_result(line({"type": "errored", "error": error}))
    assert got.outcome is Outcome.ERRORED
    assert got.error is not None
    assert (got.error.kind, got.error.message, got.error.code) == (kind, message, code)


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ({"type": "expired"}, Outcome.EXPIRED),
        ({"type": "canceled"}, Outcome.CANCELED),
        ({"type": "paused"}, Outcome.ERRORED),
        ({"type": "succeeded"}, Outcome.ERRORED),
        ({"type": "succeeded", "message": {"error": {"type": "api_error", "message": "x"}}}, Outcome.ERRORED),
    ],
)
def test_other_endings(result: Any, outcome: Outcome) -> None:
    """A type nobody knows is no success, whatever the SDK makes of it."""
    assert FORM.parse_result(line(result)).outcome is outcome


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"[]", b"null", b"{", b'{"result":{"type":"expired"}}', b'{"custom_id":"a"}', line({}, ""),
        b'{"custom_id":"a","result":{"type":"succeeded","message":{"content":[{"type":"te', line({"type": 3}),
        line({"type": "expired"}, 7), b"[" * 100_000,
    ],
)  # fmt: skip
def test_lines_that_say_nothing_usable(raw: bytes) -> None:
    """They raise ValueError with a reason and nothing else (field report 102)."""
    with pytest.raises(ValueError, match=r"\w"):
        FORM.parse_result(raw)


@given(st.binary(max_size=60))
def test_noise_raises_value_error_only(noise: bytes) -> None:
    """No bytes crash the parser."""
    with pytest.raises(ValueError):
        FORM.parse_result(b'{"custom_id":"a",' + noise)


@given(st.text(), st.integers(0, 10**6), st.integers(0, 10**6))
def test_any_text_comes_back(text: str, given_tokens: int, made: int) -> None:
    """Whatever the model wrote is what we read, in either lane."""
    message = MESSAGE | {"content": [{"type": "text", "text": text}]}
    message["usage"] = {"input_tokens": given_tokens, "output_tokens": made}
    batch = FORM.parse_result(
        json.dumps({"custom_id": "a", "result": {"type": "succeeded", "message": message}}).encode()
    )
    sync = FORM.parse_completion("a", json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    assert batch == sync
    assert batch.text == text
    assert batch.usage == (Usage(given_tokens, made) if given_tokens or made else None)


@pytest.mark.parametrize("raw", [b"<html>", b"{}", b"[]", b'{"type":"completion","content":"x"}', b""])
def test_a_completion_that_is_none(raw: bytes) -> None:
    """A 200 that holds no message is unreadable, not an empty answer."""
    with pytest.raises(ValueError):
        FORM.parse_completion("a", raw)


@pytest.mark.parametrize(
    ("type_", "code", "status", "message", "kind"),
    [
        ("invalid_request_error", None, 400, "bad", ErrorKind.PERMANENT),
        ("invalid_request_error", None, 400, "You have reached your specified API usage limits.", ErrorKind.SYSTEMIC),
        (
            "invalid_request_error",
            None,
            400,
            "You have reached your specified workspace API usage limits",
            ErrorKind.SYSTEMIC,
        ),
        ("invalid_request_error", "organization_on_hold", 400, "x", ErrorKind.SYSTEMIC),
        ("invalid_request_error", "a_new_code", 400, "x", ErrorKind.PERMANENT),
        ("authentication_error", None, 401, "x", ErrorKind.SYSTEMIC),
        ("billing_error", None, 402, "x", ErrorKind.SYSTEMIC),
        ("permission_error", None, 403, "x", ErrorKind.SYSTEMIC),
        ("not_found_error", None, 404, "model: x", ErrorKind.SYSTEMIC),
        ("request_too_large", None, 413, "x", ErrorKind.PERMANENT),
        ("rate_limit_error", None, 429, "x", ErrorKind.RETRYABLE),
        ("rate_limit_error", "enforced_spend_limit_reached", 429, "x", ErrorKind.SYSTEMIC),
        ("rate_limit_error", "ramp_limit_exceeded", 429, "x", ErrorKind.RETRYABLE),
        ("api_error", None, None, "x", ErrorKind.RETRYABLE),
        ("overloaded_error", None, 529, "x", ErrorKind.RETRYABLE),
        ("a_new_type", None, None, "x", ErrorKind.RETRYABLE),
        (None, None, 418, "x", ErrorKind.PERMANENT),
    ],
)
def test_what_errors_ask_for(
    type_: str | None, code: str | None, status: int | None, message: str, kind: ErrorKind
) -> None:
    """Anthropic's table, by code, message, status and type (field report 71)."""
    assert classify_error(type_, code, status, message) is kind


@pytest.mark.parametrize("raw", [b"<html>", b"", b"null", b"{}", b'"text"'])
def test_no_envelope(raw: bytes) -> None:
    """A body that is no error envelope gives none."""
    assert parse_error(raw, 500) is None
