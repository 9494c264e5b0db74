"""How Anthropic writes requests and results: Messages bodies, batch lines, result lines. Pure: no SDK, no network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from batchctl.core.limiter import Amounts
from batchctl.core.model import Answer, ErrorKind, ItemError, Outcome, Usage
from batchctl.providers.base import BatchLimits
from batchctl.providers.classify import ANTHROPIC, classify
from batchctl.providers.decoding import (
    MESSAGES_ENDPOINT,
    Number,
    UnreadableResultError,
    decode,
    json_text,
    known,
    parse_request,
    result_line,
    tokens,
    wrapper_problems,
)

ENVELOPE = (b'{"requests":[', b"]}")

LIMITS = BatchLimits(
    requests=100_000,
    bytes=256_000_000,
    request_bytes=32_000_000,
    envelope_bytes=len(ENVELOPE[0]) + len(ENVELOPE[1]),
    separator_bytes=1,
    one_model=False,
    custom_id_pattern=r"[a-zA-Z0-9_-]{1,64}",
)
"""Anthropic batch guide and errors page; a megabyte is read as 10^6 bytes, the smaller of the two readings."""

_REFUSED = {
    "temperature": "API version 2026-10-21 refuses sampling parameters: remove it",
    "top_p": "API version 2026-10-21 refuses sampling parameters: remove it",
    "top_k": "API version 2026-10-21 refuses sampling parameters: remove it",
    "speed": "it cannot be batched: remove it",
    "fallbacks": "it cannot be batched: remove it",
    "betas": "beta names belong in the anthropic-beta header of the call: remove it from the body",
}


class _Usage(msgspec.Struct):
    input_tokens: Number = None
    output_tokens: Number = None
    cache_creation_input_tokens: Number = None
    cache_read_input_tokens: Number = None


class _Block(msgspec.Struct):
    vital: ClassVar = {"type", "text", "input"}
    type: str | None = None
    text: str | None = None
    input: msgspec.Raw = msgspec.Raw()


class _Details(msgspec.Struct):
    error_code: str | None = None


class _Error(msgspec.Struct):
    type: str | None = None
    message: str | None = None
    details: _Details | None = None
    error: _Error | str | None = None


class _Message(msgspec.Struct):
    vital: ClassVar = {"content", "error"}
    content: list[_Block] | str | None = None
    stop_reason: str | None = None
    model: str | None = None
    usage: _Usage | None = None
    type: str | None = None
    error: _Error | str | None = None


class _Result(msgspec.Struct):
    vital: ClassVar = {"message", "error"}
    type: str
    message: _Message | None = None
    error: _Error | str | None = None


class _Line(msgspec.Struct):
    custom_id: str
    result: _Result


_BODY_MARK = b',"params":'
_LINES = msgspec.json.Decoder(_Line)
_MESSAGES = msgspec.json.Decoder(_Message)
_ENVELOPES = msgspec.json.Decoder(_Error)


def classify_error(type: str | None, code: str | None, status: int | None, message: str) -> ErrorKind:  # noqa: A002  # the provider's own word
    """What an Anthropic error asks for."""
    return classify(ANTHROPIC, type, code, status, message)


def parse_error(raw: bytes, status: int) -> ItemError | None:
    """The error of an HTTP answer that is not 200; None where the body is no error envelope."""
    try:
        envelope = decode(_ENVELOPES, raw)
    except ValueError:
        return None
    return None if envelope.error is None else _item_error(envelope, status)


def _item_error(error: _Error | str | None, status: int | None = None) -> ItemError:
    """The deepest error: batch lines nest it twice, and the outer type is always "error" (field report 43)."""
    while isinstance(error, _Error) and error.error is not None:
        error = error.error
    if not isinstance(error, _Error):
        error = _Error(message=error)
    code = error.details.error_code if error.details else None
    message = error.message or "the provider gave no reason"
    return ItemError(error.type or "unknown", message, classify_error(error.type, code, status, message), code)


def _answer(custom_id: str, message: _Message) -> Answer:
    """The answer in a Message object, of either lane."""
    if message.error is not None:
        return Answer(custom_id, Outcome.ERRORED, error=_item_error(message.error))
    usage = message.usage
    return Answer(
        custom_id,
        Outcome.SUCCEEDED,
        _text(message.content),
        message.stop_reason,
        message.model,
        None if usage is None else known(_counted(usage)),
    )


def _counted(usage: _Usage) -> Usage:
    """Anthropic's three input counts are disjoint; ours is the total."""
    cached = tokens(usage.cache_read_input_tokens)
    written = tokens(usage.cache_creation_input_tokens)
    return Usage(tokens(usage.input_tokens) + cached + written, tokens(usage.output_tokens), cached, written)


def _text(content: list[_Block] | str | None) -> str | None:
    """The text blocks as one; the input of a tool call where there is no text."""
    if content is None or isinstance(content, str):
        return content
    if len(content) == 1 and content[0].text is not None:
        return content[0].text
    texts = [block.text for block in content if block.type == "text" and block.text is not None]
    if not texts:
        for block in content:
            if block.type == "tool_use" and bytes(block.input):
                return json_text(block.input)
    return "".join(texts)


class AnthropicFormat:
    """Request format of the Messages API and of its batches."""

    name = "anthropic"
    default_endpoint = MESSAGES_ENDPOINT
    keeps_keys = False
    default_max_tokens: int | None = 4096

    def limits(self) -> BatchLimits:
        """Anthropic's limits on one batch."""
        return LIMITS

    def body(
        self,
        *,
        endpoint: str,  # noqa: ARG002  # Anthropic has one
        model: str,
        prompt: str,
        system: str | None,
        max_tokens: int | None,
        params: Mapping[str, Any],
    ) -> dict[str, Any]:
        """A Messages request with one user turn; `params` go over it."""
        body: dict[str, Any] = {"model": model}
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
        if system is not None:
            body["system"] = system
        body["messages"] = [{"role": "user", "content": prompt}]
        return body | dict(params)

    def head(self, custom_id: str, endpoint: str) -> bytes:  # noqa: ARG002  # Anthropic has one
        """The bytes of a batch line before the body; the line is head + body + `}`."""
        return b'{"custom_id":' + msgspec.json.encode(custom_id) + b',"params":'

    def split(self, line: bytes) -> tuple[str, bytes]:
        """Endpoint and body of a batch line; inside strings quotes are escaped, so the mark stands once before it."""
        return MESSAGES_ENDPOINT, line[line.index(_BODY_MARK) + len(_BODY_MARK) : -1]

    def charge(self, usage: Usage) -> Amounts:
        """What one request takes: cache reads are free, and output counts apart (rate-limits page)."""
        return Amounts(1, usage.input_tokens - usage.cached_input_tokens, usage.output_tokens)

    def problems(self, body: Mapping[str, Any], endpoint: str) -> list[str]:
        """What Anthropic would refuse in this body, each with its way out."""
        if endpoint != MESSAGES_ENDPOINT:
            return [f"Anthropic batches go to {MESSAGES_ENDPOINT}, not {endpoint}: see --provider and --endpoint"]
        problems = wrapper_problems(body)
        problems += [f'"{name}": {way}' for name, way in _REFUSED.items() if name in body]
        most = body.get("max_tokens")
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            problems.append('"max_tokens" must be a number of at least 1: give --max-tokens')
        if not isinstance(body.get("messages"), list) or not body["messages"]:
            problems.append('"messages" must be a list with at least one message')
        return problems

    def parse_request(self, line: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
        """A finished request line as (custom id, endpoint, body)."""
        return parse_request(line)

    def parse_result(self, raw: bytes) -> Answer:
        """One line of a result file.

        Raises:
            UnreadableResultError: a line without an id, or that is no result (field report 102).
        """
        line = result_line(_LINES, raw)
        result = line.result
        if not line.custom_id:
            raise UnreadableResultError("a result without a custom_id")
        match result.type:
            case "succeeded" if result.message is not None:
                return _answer(line.custom_id, result.message)
            case "errored":
                return Answer(line.custom_id, Outcome.ERRORED, error=_item_error(result.error))
            case "expired":
                return Answer(line.custom_id, Outcome.EXPIRED)
            case "canceled":
                return Answer(line.custom_id, Outcome.CANCELED)
            case _:  # the SDK would build it as a success without a message
                reason = f"a result of type {result.type!r} without an answer"
                return Answer(
                    line.custom_id, Outcome.ERRORED, error=ItemError("unknown_result", reason, ErrorKind.RETRYABLE)
                )

    def parse_completion(self, custom_id: str, raw: bytes) -> Answer:
        """The body of a 200 answer of the Messages endpoint.

        Raises:
            ValueError: a body that is no message.
        """
        message = decode(_MESSAGES, raw)
        if message.error is None and message.type != "message":
            raise ValueError("the answer is no message")
        return _answer(custom_id, message)
