"""Reads what providers put into headers: waits, rate limits, their clock. Garbage is no value, never an error."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from batchctl.providers.base import RateHeaders

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|d|h|m|s)")
_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_DIGITS = 18  # of a count that is one
_UNIX_TIME = 1e9  # a number of this size is a point in time, not a wait


_TOKENS, _INPUT_TOKENS = (
    tuple(f"anthropic-ratelimit-{kind}-{part}" for part in ("limit", "remaining", "reset"))
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


def anthropic_rates(headers: Mapping[str, str], now: float) -> RateHeaders:
    """Anthropic's limits; `tokens` are its input tokens where it tells them apart. `now` is in Unix seconds."""
    get = headers.get
    limit, remaining, reset = _INPUT_TOKENS if get(_INPUT_TOKENS[0]) else _TOKENS
    return RateHeaders(
        _count(get("anthropic-ratelimit-requests-limit")),
        _count(get("anthropic-ratelimit-requests-remaining")),
        until_reset(get("anthropic-ratelimit-requests-reset"), now),
        _count(get(limit)),
        _count(get(remaining)),
        until_reset(get(reset), now),
        _count(get("anthropic-ratelimit-output-tokens-limit")),
        _count(get("anthropic-ratelimit-output-tokens-remaining")),
    )


def openai_rates(headers: Mapping[str, str], now: float) -> RateHeaders:
    """OpenAI's limits, and those of vendors that copy its headers with other units. `now` is in Unix seconds."""
    get = headers.get
    return RateHeaders(
        _count(get("x-ratelimit-limit-requests")),
        _count(get("x-ratelimit-remaining-requests")),
        until_reset(get("x-ratelimit-reset-requests"), now),
        _count(get("x-ratelimit-limit-tokens")),
        _count(get("x-ratelimit-remaining-tokens")),
        until_reset(get("x-ratelimit-reset-tokens"), now),
    )


def until_reset(text: str | None, now: float) -> float | None:
    """Seconds until a reset: from a duration ("6m0s"), seconds, a Unix time or an RFC 3339 time."""
    if not text:
        return None
    if "T" in text:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)
    number = _number(text)
    if number is not None:
        return number if number < _UNIX_TIME else max(0.0, number - now)
    parts = _DURATION.findall(text)
    if not parts or "".join(amount + unit for amount, unit in parts) != text:
        return None
    return math.fsum(float(amount) * _SECONDS[unit] for amount, unit in parts)


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
    return None if number is None else int(number)


def _http_date(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
