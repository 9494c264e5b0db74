"""Text for terminals: control characters shown instead of obeyed, tables, numbers and ages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def safe(text: str) -> str:
    """Text with control characters and direction marks escaped, so that an id or answer cannot steer a terminal."""
    return _CONTROL.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A plain table; numbers are right-aligned."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[index][0]) for row in cells)]) for index, name in enumerate(header)]
    lines = ["  ".join(name.ljust(width) for name, width in zip(header, widths, strict=True)).rstrip()]
    lines += [
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for (text, number), width in zip(row, widths, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join(lines)


def _cell(value: object) -> tuple[str, bool]:
    if value is None:
        return "-", False
    if isinstance(value, bool):
        return ("yes" if value else "no"), False
    if isinstance(value, int):
        return f"{value:,}", True
    if isinstance(value, float):
        return f"{value:,.4f}", True
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%SZ"), False
    return safe(str(value)).replace("\n", "\\n"), False


def age(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = int(max(0.0, seconds))
    for size, unit, below, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{(whole % size) // below:02d}{small}"
    return f"{whole}s"
