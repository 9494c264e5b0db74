"""The slow path of decoding a JSON line: says what is wrong with it, or repairs broken Unicode (field report 15)."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_KINDS = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number", type(None): "null"}
_ESCAPED_SURROGATE = re.compile(rb"\\u[dD][89abAB]|\\u[dD][c-fC-F]")


class _NotFiniteError(ValueError):
    """A number JSON has no word for."""


def decode_repairing(raw: bytes, error: Exception) -> tuple[dict[str, Any], bool]:
    """Decode a line the fast decoder refused with `error`.

    Returns:
        The fields with each lone surrogate replaced by U+FFFD, and whether there was one.

    Raises:
        ValueError: the line is no JSON object that could be sent; the text says why.
    """
    if isinstance(error, RecursionError):
        raise ValueError("nested too deep") from None  # noqa: TRY004  # bad data, not a bad call
    try:
        value = json.loads(raw.decode(), parse_constant=_refuse_constant, parse_float=_finite)
    except _NotFiniteError:
        raise
    except RecursionError:
        raise ValueError("nested too deep") from None
    except ValueError as problem:
        raise ValueError(f"not JSON: {_where(problem)}") from None
    if not isinstance(value, dict):
        raise ValueError(f"not a JSON object but {_KINDS[type(value)]}")  # noqa: TRY004  # bad data, not a bad call
    if not _ESCAPED_SURROGATE.search(raw):
        raise ValueError(f"not JSON: {error}") from None
    return repaired(value), True


def _where(problem: ValueError) -> str:
    if isinstance(problem, json.JSONDecodeError):
        return f"{problem.msg} at character {problem.pos + 1}"
    return str(problem)


def _refuse_constant(name: str) -> NoReturn:
    raise _NotFiniteError(f"not JSON: {name} is no number in JSON; use null")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _NotFiniteError(f"not JSON: the number {text[:40]} is too large")
    return number


def repaired(value: Any) -> Any:
    """A JSON value with the lone surrogates of all its texts replaced by U+FFFD."""
    if isinstance(value, str):
        return without_surrogates(value)
    if isinstance(value, dict):
        return {without_surrogates(key): repaired(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [repaired(entry) for entry in value]
    return value


def without_surrogates(text: str) -> str:
    """The text with each lone surrogate replaced by U+FFFD; halves that belong together are joined."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
