"""Refusals in each provider's own envelope, and the named refusals that fault rules may ask for."""

from __future__ import annotations

from typing import Any

from batchctl.simulator.codec import encode

ANTHROPIC = "anthropic"
OPENAI = "openai"

_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OPENAI_TYPES = {
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "credit_balance_exhausted"),
    403: ("permission_error", "insufficient_permissions"),
    404: ("invalid_request_error", None),
    429: ("requests", "rate_limit_exceeded"),
    500: ("server_error", None),
    503: ("server_error", "slow_down"),
    529: ("server_error", "server_is_overloaded"),
}


class ApiError(Exception):
    """A refusal, before it takes a provider's shape."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str | None = None,
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.param = param
        self.headers = headers or {}

    def anthropic_error(self) -> dict[str, Any]:
        """Give the inner error object of platform.claude.com/docs/en/api/errors."""
        fallback = "api_error" if self.status >= 500 else "invalid_request_error"  # noqa: PLR2004
        error: dict[str, Any] = {
            "type": self.kind or _ANTHROPIC_TYPES.get(self.status, fallback),
            "message": self.message,
        }
        if self.code:
            error["details"] = {"error_code": self.code}
        return error

    def openai_error(self) -> dict[str, Any]:
        """Give the inner error object of OpenAI's error-codes guide."""
        kind, code = _OPENAI_TYPES.get(self.status, ("invalid_request_error", None))
        return {
            "message": self.message,
            "type": self.kind or kind,
            "param": self.param,
            "code": self.code or code,
        }

    def body(self, api: str, request_id: str) -> bytes:
        """Give the whole response body in the provider's envelope."""
        if api == ANTHROPIC:
            return encode({"type": "error", "error": self.anthropic_error(), "request_id": request_id})
        return encode({"error": self.openai_error()})


LOW_CREDIT = (
    "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase "
    "credits."
)
SPEND_LIMIT = "You have reached your specified API usage limits. You will regain access on 2027-01-01 at 00:00 UTC."
NO_QUOTA = "You exceeded your current quota, please check your plan and billing details."


def named_error(name: str, api: str) -> ApiError:
    """Build a refusal by its name in a fault file (strings: each provider's error pages and public reports)."""
    anthropic = api == ANTHROPIC
    table: dict[str, ApiError] = {
        "queue_full": ApiError(429, "Number of batch requests in the processing queue exceeds your limit."),
        "storage_quota": ApiError(400, "You have exceeded your file storage quota.", code="storage_quota_exceeded"),
        "file_count_quota": ApiError(400, "Too many files in this resource.", code="quotaExceeded"),
        "low_credit": ApiError(400, LOW_CREDIT)
        if anthropic
        else ApiError(429, NO_QUOTA, kind="insufficient_quota", code="credit_balance_exhausted"),
        "insufficient_quota": ApiError(
            429, "This request would exceed your spend limit.", code="enforced_spend_limit_reached"
        )
        if anthropic
        else ApiError(429, NO_QUOTA, kind="insufficient_quota", code="insufficient_quota"),
        "spend_limit": ApiError(400, SPEND_LIMIT)
        if anthropic
        else ApiError(429, NO_QUOTA, kind="insufficient_quota", code="organization_spend_limit_exceeded"),
        "on_hold": ApiError(400, "This organization is on hold.", code="organization_on_hold"),
        "overloaded": ApiError(529, "Overloaded") if anthropic else ApiError(503, "The server is overloaded."),
        "file_not_ready": ApiError(400, "The file could not be found.", param="file_id"),
        "model_not_found": ApiError(404, "model: no-such-model")
        if anthropic
        else ApiError(404, "The model `no-such-model` does not exist.", code="model_not_found"),
    }
    if name not in table:
        raise ValueError(f"unknown error name {name!r}; known: {', '.join(sorted(table))}")
    return table[name]


ERROR_NAMES = (
    "queue_full",
    "storage_quota",
    "file_count_quota",
    "low_credit",
    "insufficient_quota",
    "spend_limit",
    "on_hold",
    "overloaded",
    "file_not_ready",
    "model_not_found",
)
