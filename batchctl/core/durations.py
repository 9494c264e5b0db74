"""Durations (`90s`, `5m`, `24h`, `2d`) and sizes (`200MB`, `32KiB`) as people write them."""

from __future__ import annotations

import re

from batchctl.core.errors import InputError

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])", re.IGNORECASE)
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST = 3660 * 86_400
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMG]i?B|B)?", re.IGNORECASE)
_BYTES = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "kib": 1024,
    "mib": 1024**2,
    "gib": 1024**3,
}


def parse_duration(text: str) -> float:
    """Read a duration as seconds.

    Raises:
        InputError: no number with one of the units s, m, h, d, nothing, or longer than ten years.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{text!r} is not a duration", hint="write a number and a unit: 90s, 5m, 24h, 2d")
    seconds = float(match[1]) * _SECONDS[match[2].lower()]
    if not seconds:
        raise InputError(f"{text!r} is no time at all", hint="give a duration above zero")
    if seconds > _LONGEST:
        raise InputError(f"{text!r} is longer than ten years")
    return seconds


def format_duration(seconds: float) -> str:
    """Show a duration with its two largest units; a negative one counts as none."""
    if 0 < seconds < 9.95:  # noqa: PLR2004  # from here on 0.1 s says nothing more
        return f"{seconds:.1f}s"
    whole = max(round(seconds), 0)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour}h"
    if hours:
        return f"{hours}h {minute:02d}m"
    if minutes:
        return f"{minutes}m {second:02d}s"
    return f"{second}s"


def parse_size(text: str | int) -> int:
    """Read a size as bytes; MB is 10^6 and MiB 2^20, a bare number is bytes.

    Raises:
        InputError: no positive number of bytes.
    """
    match = _SIZE.fullmatch(str(text).strip())
    size = 0 if match is None else int(float(match[1]) * _BYTES[(match[2] or "").lower()])
    if size < 1:
        raise InputError(f"{text!r} is not a size", hint="write bytes, or a number and a unit: 200MB, 32KiB")
    return size
