"""Provider JSON of an odd shape, read as far as it goes: one wrongly typed side field must not cost a paid answer."""

from __future__ import annotations

from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec

_NOTHING = object()


def pruned(value: Any, kind: Any) -> Any:
    """JSON data without the fields that do not fit a Struct, odd numbers as numbers.

    Args:
        value: decoded JSON.
        kind: the Struct; what its class variable `vital` names is never left out, since the answer stands there.

    Raises:
        ValueError: what is left does not fit either.
    """
    part = _part(value, kind)
    if part is _NOTHING:
        raise ValueError("not of the shape of a result")
    return part


def _part(value: Any, kind: Any) -> Any:
    if _fits(value, kind):
        return value
    for option in get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,):
        part = _one(value, option)
        if part is not _NOTHING:
            return part
    return _NOTHING


def _one(value: Any, kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(value, kind) if isinstance(value, dict) else _NOTHING
    origin, inner = get_origin(kind), get_args(kind)
    if origin is list and isinstance(value, list):
        parts = [_part(element, inner[0]) for element in value]
        return _NOTHING if any(part is _NOTHING for part in parts) else parts
    if origin is dict and isinstance(value, dict):
        entries = {name: _part(entry, inner[1]) for name, entry in value.items()}
        return {name: entry for name, entry in entries.items() if entry is not _NOTHING}
    return _number(value, kind) if kind in (int, float) else _NOTHING


def _struct(value: dict[str, Any], kind: type[msgspec.Struct]) -> Any:
    hints = get_type_hints(kind)
    kept = dict(value)
    for name in kind.__struct_fields__:
        if name not in value:
            continue
        kept[name] = _part(value[name], hints[name])
        if kept[name] is _NOTHING:
            if name in getattr(kind, "vital", ()):
                return _NOTHING
            del kept[name]
    return kept if _fits(kept, kind) else _NOTHING


def _number(value: Any, kind: type) -> Any:
    """A number in quotes, or a whole one written with a point."""
    if isinstance(value, float) and kind is int:
        return int(value) if value.is_integer() else _NOTHING
    try:
        return msgspec.json.decode(value if isinstance(value, str) else b"", type=kind)
    except msgspec.DecodeError:
        return _NOTHING


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.json.decode(msgspec.json.encode(value), type=kind)
    except msgspec.DecodeError:
        return False
    return True
