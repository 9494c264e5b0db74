"""What a provider's error asks for: error taxonomies as data, read the same way for batch lines and HTTP answers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from batchctl.core.model import ErrorKind

_RETRYABLE, _PERMANENT, _SYSTEMIC = ErrorKind.RETRYABLE, ErrorKind.PERMANENT, ErrorKind.SYSTEMIC


@dataclass(frozen=True, slots=True)
class ErrorTable:
    """One provider's error words.

    Args:
        words: codes and types that decide alone, whatever the status is.
        messages: texts that decide where the words do not (spend caps arrive as invalid requests: field report 71).
        statuses: HTTP statuses that decide before the type does.
        types: the error's own type.
    """

    words: Mapping[str, ErrorKind]
    messages: re.Pattern[str]
    statuses: Mapping[int, ErrorKind]
    types: Mapping[str, ErrorKind]


_STATUSES = {
    0: _RETRYABLE,  # a line that claims to be complete and never ran (field report 99)
    401: _SYSTEMIC,
    402: _SYSTEMIC,
    403: _SYSTEMIC,
    408: _RETRYABLE,
    409: _RETRYABLE,
    429: _RETRYABLE,
    499: _RETRYABLE,
}

ANTHROPIC = ErrorTable(
    words={
        "billing_error": _SYSTEMIC,
        "enforced_spend_limit_reached": _SYSTEMIC,
        "contract_spend_limit_reached": _SYSTEMIC,
        "linked_organization_billing_unavailable": _SYSTEMIC,
        "linked_organization_spend_limit_reached": _SYSTEMIC,
        "organization_on_hold": _SYSTEMIC,
        "workspace_human_review_disabled": _SYSTEMIC,
        "cmek_context_unavailable": _SYSTEMIC,
        "cmek_key_disabled": _SYSTEMIC,
        "cmek_key_network_blocked": _SYSTEMIC,
        "cmek_key_unreachable": _SYSTEMIC,
        "ramp_limit_exceeded": _RETRYABLE,
    },
    messages=re.compile(r"credit balance is too low|specified (?:workspace )?API usage limits", re.IGNORECASE),
    statuses=_STATUSES,
    types={
        "invalid_request_error": _PERMANENT,
        "authentication_error": _SYSTEMIC,
        "permission_error": _SYSTEMIC,
        "not_found_error": _SYSTEMIC,  # of a request: its model
        "request_too_large": _PERMANENT,
        "conflict_error": _RETRYABLE,
        "rate_limit_error": _RETRYABLE,
        "api_error": _RETRYABLE,
        "timeout_error": _RETRYABLE,
        "overloaded_error": _RETRYABLE,
    },
)
"""Anthropic errors guide and the error types of its SDK."""

OPENAI = ErrorTable(
    words={
        "insufficient_quota": _SYSTEMIC,
        "credit_balance_exhausted": _SYSTEMIC,
        "organization_spend_limit_exceeded": _SYSTEMIC,
        "project_spend_limit_exceeded": _SYSTEMIC,
        "organization_usage_limit_exceeded": _SYSTEMIC,
        "billing_hard_limit_reached": _SYSTEMIC,
        "billing_not_active": _SYSTEMIC,
        "account_deactivated": _SYSTEMIC,
        "invalid_api_key": _SYSTEMIC,
        "model_not_found": _SYSTEMIC,
        "context_length_exceeded": _PERMANENT,
        "string_above_max_length": _PERMANENT,
        "unsupported_parameter": _PERMANENT,
        "unsupported_value": _PERMANENT,
        "content_policy_violation": _PERMANENT,
        "rate_limit_exceeded": _RETRYABLE,
        "slow_down": _RETRYABLE,
        "server_is_overloaded": _RETRYABLE,
    },
    messages=re.compile(
        r"exceeded your current quota|credit balance is (?:too low|exhausted)"
        r"|The model .{1,120} does not exist|hard limit has been reached",
        re.IGNORECASE,
    ),
    statuses=_STATUSES,
    types={
        "invalid_request_error": _PERMANENT,
        "authentication_error": _SYSTEMIC,
        "permission_error": _SYSTEMIC,
        "not_found_error": _PERMANENT,
        "server_error": _RETRYABLE,
        "api_error": _RETRYABLE,
    },
)
"""OpenAI error-codes guide and the codes public code reads."""

_SERVER_ERRORS = 500
_CLIENT_ERRORS = 400


def classify(
    table: ErrorTable,
    type: str | None,  # noqa: A002  # the provider's own word
    code: str | None,
    status: int | None,
    message: str,
) -> ErrorKind:
    """What an error asks for; what no table knows is worth another try, within the caps of the caller."""
    type_word, status_number = type or "", -1 if status is None else status
    decided = table.words.get(code or "") or table.words.get(type_word)
    if decided:
        return decided
    if table.messages.search(message):
        return _SYSTEMIC
    if status_number >= _SERVER_ERRORS:
        return _RETRYABLE
    by_rank = table.statuses.get(status_number) or table.types.get(type_word)
    return by_rank or (_PERMANENT if status_number >= _CLIENT_ERRORS else _RETRYABLE)
