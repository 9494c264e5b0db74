"""What can become of one item, beyond a plain answer: the names that item faults use, and how each ends."""

from __future__ import annotations

import re
from collections.abc import Callable

from batchctl.simulator.errors import ANTHROPIC, ApiError, named_error

# Names that no provider has, for tests of a mistyped model.
MISSING_MODELS = re.compile(r"^(no-such|unknown)-")

OK = "ok"
REJECTED = "rejected"  # the item's own parameters are invalid; the text comes from validating them again

# Success for the provider, odd for the reader.
ODD_ANSWERS = (
    "refusal",
    "truncated",
    "null_content",
    "empty",
    "not_json",
    "content_filter",
    "pause_turn",
    "line_separators",
)
FAILURES = (
    "api_error",
    "overloaded",
    "rate_limit",
    "status_0",
    "string_error",
    "invalid_request",
    "context_too_long",
    "low_credit",
    "spend_limit",
    "model_not_found",
    "unsupported_parameter",
)
ENDINGS = ("expired", "canceled", "missing")

KINDS = (OK, REJECTED, *ODD_ANSWERS, *FAILURES, *ENDINGS)
CODE = {name: code for code, name in enumerate(KINDS)}

SUCCESS_CODES = bytes(CODE[name] for name in (OK, *ODD_ANSWERS))
FAILURE_CODES = bytes(CODE[name] for name in (REJECTED, *FAILURES))
ENDING_CODES = bytes(CODE[name] for name in ENDINGS)


def ledger_outcome(kind: str) -> str:
    """Name the outcome of a kind as the ledger does."""
    if kind == OK or kind in ODD_ANSWERS:
        return "succeeded"
    return kind if kind in ENDINGS else "errored"


def failure(kind: str, api: str) -> ApiError:
    """Build the error of a failing kind (each provider's error pages; field notes for status 0)."""
    if kind in ("low_credit", "spend_limit", "overloaded"):
        return named_error(kind, api)
    builders: dict[str, Callable[[], ApiError]] = {
        "rate_limit": lambda: ApiError(429, "Rate limit reached.", headers={"retry-after": "1"}),
        "invalid_request": lambda: ApiError(400, "messages.0.content: simulated invalid request", param="messages"),
        "context_too_long": lambda: too_long(200_001, 200_000, api),
        "model_not_found": lambda: missing_model("no-such-model", api),
        "unsupported_parameter": lambda: unsupported("temperature", "this model"),
    }
    return builders[kind]() if kind in builders else ApiError(500, "The server had an error; try again.")


def too_long(tokens: int, limit: int, api: str) -> ApiError:
    """Refuse a prompt that does not fit the model's context."""
    if api == ANTHROPIC:
        return ApiError(400, f"prompt is too long: {tokens} tokens > {limit} maximum")
    return ApiError(
        400,
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} tokens.",
        code="context_length_exceeded",
        param="messages",
    )


def missing_model(model: str, api: str) -> ApiError:
    """Refuse a model that does not exist."""
    if api == ANTHROPIC:
        return ApiError(404, f"model: {model}")
    return ApiError(404, f"The model `{model}` does not exist or you do not have access to it.", code="model_not_found")


def unsupported(param: str, model: str) -> ApiError:
    """Refuse a parameter that newer OpenAI models no longer take."""
    return ApiError(
        400,
        f"Unsupported parameter: '{param}' is not supported with {model}.",
        code="unsupported_parameter",
        param=param,
    )
