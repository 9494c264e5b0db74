"""OpenAI's chat completions, responses and embeddings as data: what a request may hold, what answers look like."""

from __future__ import annotations

import base64
import re
import struct
from typing import Any

from batchctl.simulator.codec import draw, short_hash, text_tokens
from batchctl.simulator.content import Completion, Prompt, complete, flat_text, read_messages
from batchctl.simulator.errors import OPENAI, ApiError
from batchctl.simulator.kinds import MISSING_MODELS, missing_model, too_long, unsupported

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
ANSWERED = (CHAT, RESPONSES, EMBEDDINGS)
BATCH_ENDPOINTS = (
    *ANSWERED,
    "/v1/completions",
    "/v1/moderations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/videos",
)
_CONTENT_FIELD = {CHAT: "messages", RESPONSES: "input", EMBEDDINGS: "input"}
_LIMIT_FIELDS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_NEWER_MODELS = re.compile(r"^(o\d|gpt-[5-9])")
_FINISH = {"stop": "stop", "pause": "stop", "refusal": "stop", "length": "length", "content_filter": "content_filter"}


def missing_parameter(body: Any, endpoint: str) -> str | None:
    """Name the required parameter a body lacks; in a batch file one such line fails the whole file."""
    if not isinstance(body, dict):
        return "body"
    for name in ("model", _CONTENT_FIELD.get(endpoint, "model")):
        if body.get(name) is None:
            return name
    return None


def read_prompt(body: dict[str, Any], endpoint: str) -> Prompt:
    """Read what the model sees."""
    if endpoint == CHAT:
        return read_messages(body.get("messages"))
    given = body.get("input")
    if endpoint == EMBEDDINGS:
        text, _ = flat_text(given)
        return Prompt(text, "", text_tokens(text))
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return read_messages(given, body.get("instructions") or "")


def output_limit(body: dict[str, Any]) -> int | None:
    """Give the output limit under whichever name the body has it."""
    return next((body[name] for name in _LIMIT_FIELDS if isinstance(body.get(name), int)), None)


def check_body(body: Any, endpoint: str, context_tokens: int) -> ApiError | None:
    """Check one request as the endpoint does (OpenAI API reference; newer models refuse older parameters)."""
    if not isinstance(body, dict):
        return ApiError(400, "We could not parse the JSON body of your request.")
    if missing := missing_parameter(body, endpoint):
        message = f"Missing required parameter: '{missing}'."
        return ApiError(400, message, code="missing_required_parameter", param=missing)
    model = body["model"]
    if not isinstance(model, str) or MISSING_MODELS.match(model):
        return missing_model(str(model), OPENAI)
    if body.get("stream"):
        return ApiError(400, "Streaming is not supported by this simulator.", code="unsupported_value", param="stream")
    return _check_parameters(body, endpoint) or _check_input(body, endpoint, context_tokens)


def _check_parameters(body: dict[str, Any], endpoint: str) -> ApiError | None:
    model = body["model"]
    if endpoint == CHAT and _NEWER_MODELS.match(model):
        if "max_tokens" in body:
            return unsupported("max_tokens", f"this model ({model}); use 'max_completion_tokens' instead")
        if body.get("temperature", 1) != 1:
            return unsupported("temperature", f"this model ({model})")
    limit = output_limit(body)
    if limit is not None and limit < 1:
        return ApiError(400, "The output token limit must be at least 1.", code="integer_below_min_value")
    return None


def _check_input(body: dict[str, Any], endpoint: str, context_tokens: int) -> ApiError | None:
    field = _CONTENT_FIELD.get(endpoint, "input")
    given = body.get(field)
    parts = given if isinstance(given, list) else [given]
    if not parts or (endpoint == EMBEDDINGS and any(part == "" for part in parts)):
        return ApiError(400, f"Invalid '{field}': input must not be empty.", code="invalid_value", param=field)
    if endpoint == CHAT:
        for place, message in enumerate(parts):
            if not isinstance(message, dict) or "role" not in message:
                return ApiError(400, f"Invalid type for 'messages[{place}]'.", code="invalid_type", param=field)
    tokens = read_prompt(body, endpoint).tokens
    return too_long(tokens, context_tokens, OPENAI) if tokens > context_tokens else None


def write_answer(
    body: dict[str, Any], endpoint: str, kind: str, *, identity: str, at: float, dimensions: int
) -> dict[str, Any]:
    """Write the response body of any answered endpoint."""
    prompt = read_prompt(body, endpoint)
    if endpoint == EMBEDDINGS:
        return _embeddings(body, prompt, dimensions)
    completion = complete(prompt, kind, output_limit(body))
    if endpoint == RESPONSES:
        return _response(body, prompt, completion, identity, at)
    return _chat(body, prompt, completion, identity, at)


def _chat(body: dict[str, Any], prompt: Prompt, completion: Completion, identity: str, at: float) -> dict[str, Any]:
    refused = completion.finish == "refusal"
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if refused else completion.text,
        "refusal": completion.text if refused else None,
        "annotations": [],
    }
    return {
        "id": f"chatcmpl-{short_hash('chat', identity).hex()}",
        "object": "chat.completion",
        "created": int(at),
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _FINISH[completion.finish]}],
        "usage": {
            "prompt_tokens": prompt.tokens,
            "completion_tokens": completion.tokens,
            "total_tokens": prompt.tokens + completion.tokens,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        },
        "service_tier": "default",
        "system_fingerprint": "fp_simulated",
    }


def _response(body: dict[str, Any], prompt: Prompt, completion: Completion, identity: str, at: float) -> dict[str, Any]:
    incomplete = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(completion.finish)
    return {
        "id": f"resp_{short_hash('resp', identity).hex()}",
        "object": "response",
        "created_at": int(at),
        "status": "incomplete" if incomplete else "completed",
        "error": None,
        "incomplete_details": {"reason": incomplete} if incomplete else None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": body["model"],
        "output": _output(completion, identity, "incomplete" if incomplete else "completed"),
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "reasoning": {"effort": None, "summary": None},
        "service_tier": "default",
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": body.get("top_p", 1.0),
        "truncation": "disabled",
        "usage": {
            "input_tokens": prompt.tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": completion.tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt.tokens + completion.tokens,
        },
        "user": None,
    }


def _output(completion: Completion, identity: str, status: str) -> list[dict[str, Any]]:
    if completion.text is None:
        return []
    part: dict[str, Any] = {"type": "output_text", "text": completion.text, "annotations": [], "logprobs": []}
    if completion.finish == "refusal":
        part = {"type": "refusal", "refusal": completion.text}
    name = f"msg_{short_hash('out', identity).hex()}"
    return [{"id": name, "type": "message", "status": status, "role": "assistant", "content": [part]}]


def _embeddings(body: dict[str, Any], prompt: Prompt, dimensions: int) -> dict[str, Any]:
    given = body.get("input")
    inputs = given if isinstance(given, list) and given and isinstance(given[0], str | list) else [given]
    length = body.get("dimensions") or dimensions
    data = []
    for place, text in enumerate(inputs):
        vector = [draw(text, index) * 2 - 1 for index in range(length)]
        packed = base64.b64encode(struct.pack(f"<{length}f", *vector)).decode()
        value: Any = packed if body.get("encoding_format") == "base64" else vector
        data.append({"object": "embedding", "index": place, "embedding": value})
    usage = {"prompt_tokens": prompt.tokens, "total_tokens": prompt.tokens}
    return {"object": "list", "data": data, "model": body["model"], "usage": usage}
