"""Durations and sizes as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.durations import format_duration, parse_duration, parse_size
from batchctl.core.errors import InputError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("24h", 86_400), ("2d", 172_800), ("1.5h", 5400), (" 3 M ", 180)],
)
def test_durations_are_read_as_seconds(text: str, seconds: float) -> None:
    """A number with a unit is a duration."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "90", "-5m", "0s", "5 minutes", "1h30m", "nan s", "1e3s", "٣s", "99999d", "9" * 400 + "s"]
)
def test_other_words_are_no_durations(text: str) -> None:
    """A duration without a unit, negative or absurdly long is refused with a way out or a reason."""
    with pytest.raises(InputError) as caught:
        parse_duration(text)
    assert repr(text) in caught.value.message


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "0s"),
        (0, "0s"),
        (0.42, "0.4s"),
        (9.96, "10s"),
        (59.6, "1m 00s"),
        (247, "4m 07s"),
        (3599.9, "1h 00m"),
        (11_220, "3h 07m"),
        (86_400 * 2 + 3600 * 4, "2d 4h"),
    ],
)
def test_durations_are_shown_with_two_units(seconds: float, text: str) -> None:
    """A duration is shown as short as it can be understood."""
    assert format_duration(seconds) == text


@given(st.floats(0, 1e8))
def test_no_unit_is_shown_above_its_range(seconds: float) -> None:
    """Rounding never yields 60 seconds, 60 minutes or 24 hours."""
    text = format_duration(seconds)
    assert not any(word in text.split() for word in ("60s", "60m", "24h"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("200MB", 200_000_000),
        ("32KiB", 32_768),
        ("1.5 gb", 1_500_000_000),
        (512, 512),
        ("7", 7),
        ("1MiB", 2**20),
        ("9B", 9),
    ],
)
def test_sizes_are_read_as_bytes(text: str | int, size: int) -> None:
    """MB is a power of ten, MiB one of two, a bare number is bytes."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", 0, -1, "-5MB", "MB", "0.2B", "10TB", "1e6"])
def test_other_words_are_no_sizes(text: str | int) -> None:
    """A size is at least one byte."""
    with pytest.raises(InputError, match="not a size"):
        parse_size(text)
