"""Tells whether two commands ask for the same, and names what differs (field reports 174 and 175)."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

SHOWN = 60  # characters of a value in a message


def fingerprint(settings: Mapping[str, Any]) -> str:
    """12 hex characters that change with the settings; a setting that is None counts as not given."""
    given = {name: value for name, value in settings.items() if value is not None}
    return _digest(_canonical(given), 12)


def key_hint(key: str, salt: str) -> str:
    """12 hex digits that change with the key and tell nothing else about it; of no use without the salt either."""
    return hmac.new(salt.encode(), key.encode(errors="replace"), hashlib.sha256).hexdigest()[:12]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Each setting that differs as (field, old, new), short enough for a message; empty for equal fingerprints.

    Fields of nested settings are named with a dot. Of long texts the digest and the first differing line are shown.
    """
    found: list[tuple[str, str, str]] = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if _canonical(before) == _canonical(after):
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            inner = differences(before, after)
            found.extend((f"{name}.{field}", was, now) for field, was, now in inner)
            if inner:
                continue
        found.append((name, *_shown(before, after)))
    return found


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:length]


def _shown(before: Any, after: Any) -> tuple[str, str]:
    short = _plain(before), _plain(after)
    if short[0] == short[1]:
        short = _canonical(before), _canonical(after)
    if all(len(text) <= SHOWN and "\n" not in text for text in short):
        return short
    lines = zip_longest(short[0].split("\n"), short[1].split("\n"))
    number, was, now = next((number, was, now) for number, (was, now) in enumerate(lines, start=1) if was != now)
    return _long(short[0], before, number, was), _long(short[1], after, number, now)


def _plain(value: Any) -> str:
    if value is None:
        return "not given"
    return value if isinstance(value, str) else _canonical(value)


def _long(text: str, value: Any, number: int, line: str | None) -> str:
    if value is None:
        return text
    if line is None:
        part = "ends before it"
    elif len(line) > SHOWN:
        part = repr(line[:SHOWN] + "…")
    else:
        part = repr(line)
    return f"text {_digest(text, 8)}, line {number}: {part}"
