"""Answers of an odd shape: fields of a JSON answer, or of each line of a download, replaced as a fault rule asks."""

from __future__ import annotations

from typing import Any

from batchctl.simulator.codec import decode, encode


def edited(body: bytes, rule: dict[str, Any]) -> bytes:
    """Apply an `edit` rule to an answer.

    Args:
        body: one JSON object, or lines of them.
        rule: `set` maps paths such as `data.*.metadata` to new values, where `*` is each element of a list; `reverse`
            turns the lists at these paths round; `line` is the only line (from 1) that is touched.
    """
    lines = body.rstrip(b"\n").split(b"\n")
    for place, line in enumerate(lines, 1):
        if line and rule.get("line", place) == place:
            lines[place - 1] = encode(_edited(decode(line), rule))
    return b"\n".join(lines) + body[len(body.rstrip(b"\n")) :]


def _edited(value: Any, rule: dict[str, Any]) -> Any:
    for path, new in rule.get("set", {}).items():
        _replace(value, path.split("."), new)
    for path in rule.get("reverse", []):
        *parents, name = path.split(".")
        for parent in _at(value, parents):
            if isinstance(parent, dict) and isinstance(parent.get(name), list):
                parent[name].reverse()
    return value


def _replace(value: Any, path: list[str], new: Any) -> None:
    *parents, name = path
    for parent in _at(value, parents):
        if isinstance(parent, dict):
            parent[name] = new
        elif isinstance(parent, list) and name == "*":
            parent[:] = [new] * len(parent)


def _at(value: Any, path: list[str]) -> list[Any]:
    """The values at a path; where it leads nowhere, none."""
    found = [value]
    for name in path:
        if name == "*":
            found = [element for one in found if isinstance(one, list) for element in one]
        else:
            found = [one[name] for one in found if isinstance(one, dict) and name in one]
    return found
