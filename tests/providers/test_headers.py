"""Waits and limits in every form providers send them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.providers.base import RateHeaders
from batchctl.providers.headers import anthropic_rates, openai_rates, retry_after, server_time
from batchctl.providers.times import CLOCK_SLACK, earliest, from_text, from_unix

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "30"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "30"}, 30.0),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:45 GMT"}, 45.0),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:45 GMT", "date": "Mon, 30 Nov 2026 12:00:40 GMT"}, 5.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "a while"}, None),
        ({"retry-after": ""}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, milliseconds and dates are read; garbage is ignored (field report 139)."""
    assert retry_after(headers, NOW) == seconds


@given(st.text(max_size=20))
def test_garbage_is_no_value(text: str) -> None:
    """No header text raises."""
    headers = dict.fromkeys(
        ("retry-after", "date", "x-ratelimit-limit-requests", "anthropic-ratelimit-requests-limit"), text
    )
    retry_after(headers, NOW)
    server_time(headers)
    openai_rates(headers)
    anthropic_rates(headers)


def test_anthropic_limits() -> None:
    """Input tokens are the tokens where they are told apart, else the limit in force."""
    headers = {
        "anthropic-ratelimit-requests-limit": "1000",
        "anthropic-ratelimit-requests-remaining": "999",
        "anthropic-ratelimit-tokens-limit": "5",
        "anthropic-ratelimit-tokens-remaining": "4",
        "anthropic-ratelimit-output-tokens-limit": "400",
        "anthropic-ratelimit-output-tokens-remaining": "300",
    }
    assert anthropic_rates(headers) == RateHeaders(1000, 999, 5, 4, 400, 300)
    headers |= {"anthropic-ratelimit-input-tokens-limit": "50", "anthropic-ratelimit-input-tokens-remaining": "40"}
    assert anthropic_rates(headers).tokens_limit == 50
    assert anthropic_rates({}) == RateHeaders()


def test_openai_limits() -> None:
    """The four headers, absent ones as None."""
    headers = {
        "x-ratelimit-limit-requests": "100",
        "x-ratelimit-remaining-requests": "99",
        "x-ratelimit-limit-tokens": "3000",
        "x-ratelimit-remaining-tokens": "junk",
    }
    assert openai_rates(headers) == RateHeaders(100, 99, 3000)
    headers["x-ratelimit-limit-requests"] = "1e99"  # no account has that, and no advice may name it
    assert openai_rates(headers) == RateHeaders(None, 99, 3000)


@pytest.mark.parametrize(
    ("server", "moved"),
    [
        (None, timedelta()),
        (NOW, timedelta()),
        (NOW - timedelta(hours=2), timedelta(hours=2)),
        (NOW + timedelta(hours=2), timedelta()),
    ],
)
def test_the_window_of_a_lost_create_only_grows(server: datetime | None, moved: timedelta) -> None:
    """A provider's slow clock widens the window; a fast one must not make us miss a paid batch."""
    intent = NOW - timedelta(minutes=5)
    assert earliest(intent, server, NOW) == intent - CLOCK_SLACK - moved


@pytest.mark.parametrize("text", ["", None, "soon", "2026-13-01T00:00:00Z"])
def test_times_that_are_none(text: str | None) -> None:
    """An unreadable time is no time."""
    assert from_text(text) is None


def test_times() -> None:
    """Both providers' times, in UTC."""
    assert from_text("2026-11-30T12:00:00Z") == from_text("2026-11-30T12:00:00") == from_unix(NOW.timestamp()) == NOW
    assert from_unix(None) is from_unix(0) is from_unix(1e30) is None
