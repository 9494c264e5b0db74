"""Reads what providers put into headers: waits, rate limits, their clock. Garbage is no value, never an error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from batchctl.providers.base import RateHeaders
from batchctl.providers.times import sane

_DIGITS = 18  # of a count that is one


_TOKENS, _INPUT_TOKENS = (
    tuple(f"anthropic-ratelimit-{kind}-{part}" for part in ("limit", "remaining"))
    for kind in ("tokens", "input-tokens")
)


def server_time(headers: Mapping[str, str]) -> datetime | None:
    """The provider's clock at the answer, from its Date header."""
    return _http_date(headers.get("date"))


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds the provider asked to wait, in any of the three forms it may use (field report 139)."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    asked = headers.get("retry-after")
    seconds = _number(asked)
    if seconds is not None:
        return seconds
    until = _http_date(asked)
    return None if until is None else max(0.0, (until - (server_time(headers) or now)).total_seconds())


def anthropic_rates(headers: Mapping[str, str]) -> RateHeaders:
    """Anthropic's limits; `tokens` are its input tokens where it tells them apart."""
    get = headers.get
    limit, remaining = _INPUT_TOKENS if get(_INPUT_TOKENS[0]) else _TOKENS
    return RateHeaders(
        _count(get("anthropic-ratelimit-requests-limit")),
        _count(get("anthropic-ratelimit-requests-remaining")),
        _count(get(limit)),
        _count(get(remaining)),
        _count(get("anthropic-ratelimit-output-tokens-limit")),
        _count(get("anthropic-ratelimit-output-tokens-remaining")),
    )


def openai_rates(headers: Mapping[str, str]) -> RateHeaders:
    """OpenAI's limits, and those of vendors that copy its headers."""
    get = headers.get
    return RateHeaders(
        _count(get("x-ratelimit-limit-requests")),
        _count(get("x-ratelimit-remaining-requests")),
        _count(get("x-ratelimit-limit-tokens")),
        _count(get("x-ratelimit-remaining-tokens")),
    )


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _count(text: str | None) -> int | None:
    if text is None:
        return None
    if text.isdecimal() and len(text) <= _DIGITS:
        return int(text)
    number = _number(text)
    return int(number) if number is not None and number < 10**_DIGITS else None


def _http_date(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return sane(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
