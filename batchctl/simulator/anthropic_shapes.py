"""Anthropic's Messages API as data: what a request may hold, and what a message looks like."""

from __future__ import annotations

import re
from typing import Any

from batchctl.simulator.codec import short_hash
from batchctl.simulator.content import Completion, Prompt, complete, read_messages
from batchctl.simulator.errors import ANTHROPIC, ApiError
from batchctl.simulator.kinds import MISSING_MODELS, missing_model, too_long

STRICT_VERSION = "2026-10-21"
SAMPLING = ("temperature", "top_p", "top_k")
_NOT_IN_BATCHES = ("speed", "fallbacks", "store", "previous_thread_event_id", "cache_hint", "context_hint", "betas")
_NO_SAMPLING_MODELS = re.compile(r"claude-(opus-4-[78]|fable-5|(opus|sonnet|haiku)-[5-9])")
_STOP_REASONS = {
    "stop": "end_turn",
    "length": "max_tokens",
    "refusal": "refusal",
    "content_filter": "refusal",
    "pause": "pause_turn",
}


def read_prompt(params: dict[str, Any]) -> Prompt:
    """Read what the model sees."""
    return read_messages(params.get("messages"), params.get("system", ""))


def check_params(
    params: Any, *, version: str, context_tokens: int, batch: bool, counting: bool = False
) -> ApiError | None:
    """Check one Messages request (platform.claude.com: messages, versioning and batch-processing pages)."""
    if not isinstance(params, dict):
        return ApiError(400, "Input should be an object")
    return (
        _check_presence(params, counting=counting)
        or _check_batch_only(params, batch=batch)
        or _check_sampling(params, version)
        or _check_messages(params["messages"])
        or _check_size(params, context_tokens)
    )


def _check_presence(params: dict[str, Any], *, counting: bool) -> ApiError | None:
    model = params.get("model")
    if not isinstance(model, str) or not model:
        return ApiError(400, "model: Field required")
    if MISSING_MODELS.match(model):
        return missing_model(model, ANTHROPIC)
    if not counting:
        most = params.get("max_tokens")
        if most is None:
            return ApiError(400, "max_tokens: Field required")
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            return ApiError(400, "max_tokens: Input should be greater than or equal to 1")
    if "messages" not in params:
        return ApiError(400, "messages: Field required")
    return None


def _check_batch_only(params: dict[str, Any], *, batch: bool) -> ApiError | None:
    if params.get("stream"):
        where = "in batch requests" if batch else "by this simulator"
        return ApiError(400, f"stream: Streaming is not supported {where}")
    if batch:
        for name in _NOT_IN_BATCHES:
            if name in params:
                return ApiError(400, f"{name}: Extra inputs are not permitted")
    return None


def _check_sampling(params: dict[str, Any], version: str) -> ApiError | None:
    strict = version >= STRICT_VERSION or _NO_SAMPLING_MODELS.search(params["model"])
    for name in SAMPLING:
        if strict and name in params:
            return ApiError(400, f"{name}: Extra inputs are not permitted")
    return None


def _check_messages(messages: Any) -> ApiError | None:
    if not isinstance(messages, list) or not messages:
        return ApiError(400, "messages: at least one message is required")
    for place, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            return ApiError(400, f"messages.{place}.role: Input should be 'user' or 'assistant'")
        content = message.get("content")
        if not isinstance(content, str | list):
            return ApiError(400, f"messages.{place}.content: Field required")
        if not content or (isinstance(content, str) and not content.strip()):
            return ApiError(400, f"messages.{place}: user messages must have non-empty content")
        if isinstance(content, list) and any(
            isinstance(part, dict) and part.get("type") == "text" and not str(part.get("text", "")).strip()
            for part in content
        ):
            return ApiError(400, f"messages.{place}: text content blocks must be non-empty")
    return None


def _check_size(params: dict[str, Any], context_tokens: int) -> ApiError | None:
    tokens = read_prompt(params).tokens
    return too_long(tokens, context_tokens, ANTHROPIC) if tokens > context_tokens else None


def write_message(params: dict[str, Any], kind: str, *, identity: str, batch: bool) -> dict[str, Any]:
    """Write the message that answers a request (anthropic types/message.py)."""
    prompt = read_prompt(params)
    completion = complete(prompt, kind, params.get("max_tokens"))
    return {
        "id": f"msg_{short_hash('msg', identity).hex()}",
        "type": "message",
        "role": "assistant",
        "model": params["model"],
        "content": _blocks(completion),
        "stop_reason": _STOP_REASONS[completion.finish],
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "usage": _usage(prompt, completion, batch=batch),
    }


def _blocks(completion: Completion) -> list[dict[str, Any]]:
    return [] if completion.text is None else [{"type": "text", "text": completion.text, "citations": None}]


def _usage(prompt: Prompt, completion: Completion, *, batch: bool) -> dict[str, Any]:
    return {
        "input_tokens": prompt.tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": completion.tokens,
        "server_tool_use": None,
        "service_tier": "batch" if batch else "standard",
    }
