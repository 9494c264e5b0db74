"""How OpenAI writes requests: bodies of three endpoints, batch lines, limits. Pure: no SDK, no network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from batchctl.core.errors import InputError
from batchctl.core.limiter import Amounts
from batchctl.core.model import Answer, Usage
from batchctl.providers.base import BatchLimits
from batchctl.providers.decoding import parse_request, wrapper_problems
from batchctl.providers.openai_results import parse_completion, parse_result

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
ENDPOINTS = (
    CHAT,
    RESPONSES,
    EMBEDDINGS,
    "/v1/completions",
    "/v1/moderations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/videos",
)
"""Where batches may go (the SDK's type of `endpoint`); a prompt can be written for the first three."""

LIMITS = BatchLimits(
    requests=50_000,
    bytes=200_000_000,
    request_bytes=200_000_000,
    envelope_bytes=0,
    separator_bytes=1,
    one_model=True,
    custom_id_pattern=r"[!-~](?:[ -~]{0,62}[!-~])?",
)
"""OpenAI batch guide. No rule for custom ids is documented: 64 printable ASCII characters pass by all copies of it."""

_NEEDED = {CHAT: "messages", RESPONSES: "input", EMBEDDINGS: "input"}


class _Head(msgspec.Struct):
    url: str


_BODY_MARK = b',"body":'
_HEADS = msgspec.json.Decoder(_Head)


class OpenAIFormat:
    """Request format of the OpenAI endpoints and of their batches."""

    name = "openai"
    default_endpoint = CHAT
    keeps_keys = True
    default_max_tokens: int | None = None

    def limits(self) -> BatchLimits:
        """OpenAI's limits on one batch."""
        return LIMITS

    def body(
        self,
        *,
        endpoint: str,
        model: str,
        prompt: str,
        system: str | None,
        max_tokens: int | None,
        params: Mapping[str, Any],
    ) -> dict[str, Any]:
        """A request with one prompt; `params` go over it.

        Raises:
            InputError: an endpoint no prompt can be written for, or that takes no system prompt or token limit.
        """
        body: dict[str, Any] = {"model": model}
        if endpoint == CHAT:
            turns = [] if system is None else [{"role": "system", "content": system}]
            body["messages"] = [*turns, {"role": "user", "content": prompt}]
            # newer models refuse max_tokens (field report 42)
            limit = {} if max_tokens is None else {"max_completion_tokens": max_tokens}
        elif endpoint == RESPONSES:
            if system is not None:
                body["instructions"] = system
            body["input"] = prompt
            limit = {} if max_tokens is None else {"max_output_tokens": max_tokens}
        elif endpoint == EMBEDDINGS:
            if system is not None or max_tokens is not None:
                raise InputError(
                    "embeddings take no system prompt and no token limit", hint="leave out --system and --max-tokens"
                )
            body["input"] = prompt
            limit = {}
        else:
            raise InputError(
                f"no prompt can be written for {endpoint}",
                hint=f"use {CHAT}, {RESPONSES} or {EMBEDDINGS}, or give finished requests with --requests",
            )
        return body | limit | dict(params)

    def head(self, custom_id: str, endpoint: str) -> bytes:
        """The bytes of a batch line before the body; the line is head + body + `}`."""
        encode = msgspec.json.encode
        return b'{"custom_id":' + encode(custom_id) + b',"method":"POST","url":' + encode(endpoint) + b',"body":'

    def split(self, line: bytes) -> tuple[str, bytes]:
        """Endpoint and body of a batch line; inside strings quotes are escaped, so the mark stands once before it."""
        start = line.index(_BODY_MARK)
        return _HEADS.decode(line[:start] + b"}").url, line[start + len(_BODY_MARK) : -1]

    def charge(self, usage: Usage) -> Amounts:
        """What one request takes: input and output together (rate-limits guide)."""
        return Amounts(1, usage.input_tokens + usage.output_tokens)

    def problems(self, body: Mapping[str, Any], endpoint: str) -> list[str]:
        """What OpenAI would refuse in this body, each with its way out."""
        if endpoint not in ENDPOINTS:
            return [f"OpenAI batches do not go to {endpoint}: use one of {', '.join(ENDPOINTS)}, or see --provider"]
        problems = wrapper_problems(body)
        several = body.get("n", 1)
        if endpoint == CHAT and several not in (1, None):
            problems.append('"n" asks for several answers to one item: remove it and repeat the item under other ids')
        if body.get("background"):
            problems.append('"background" gives no answer to wait for: remove it')
        needed = _NEEDED.get(endpoint)
        if needed and not body.get(needed) and not (endpoint == RESPONSES and body.get("prompt")):
            problems.append(f'"{needed}" is missing or empty')
        return problems

    def parse_request(self, line: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
        """A finished request line as (custom id, endpoint, body)."""
        return parse_request(line)

    def parse_result(self, raw: bytes) -> Answer:
        """One line of an output or error file; raises as `openai_results.parse_result`."""
        return parse_result(raw)

    def parse_completion(self, custom_id: str, raw: bytes) -> Answer:
        """The body of a 200 answer of an ordinary endpoint; raises as `openai_results.parse_completion`."""
        return parse_completion(custom_id, raw)
