"""Text for terminals: control characters shown instead of obeyed, tables and numbers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

MEASURED = 1_000  # rows of a long table that decide how wide its columns are
SHOWN_OF_A_MESSAGE = 120

_JSON_CONTROL = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


_COMMAND = re.compile("`batchctl (?!--state )")


def commands_for(text: str, state: Path | None) -> str:
    """Text whose commands can be given as they stand: with the state file, where it is not the default one."""
    return text if state is None else _COMMAND.sub(lambda _: f"`batchctl --state {shlex.quote(str(state))} ", text)


def safe(text: str) -> str:
    """Text with control characters and direction marks escaped, so that an id or answer cannot steer a terminal."""
    return _CONTROL.sub(_escaped, text)


def json_safe(text: str) -> str:
    """JSON that says the same with escapes where a terminal would obey; JSON itself escapes only the first 32."""
    return _JSON_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A plain table; numbers are right-aligned."""
    return "\n".join(table_lines(header, rows, measured=None))


def table_lines(
    header: Sequence[str], rows: Iterable[Sequence[object]], *, measured: int | None = MEASURED
) -> Iterator[str]:
    """A table line by line, its columns as wide as its first rows ask for: there may be millions more.

    Args:
        measured: how many rows are held to measure; None holds all.
    """
    cells = ([_cell(value) for value in row] for row in rows)
    first = list(islice(cells, measured))
    widths = [max([len(name), *(len(row[index][0]) for row in first)]) for index, name in enumerate(header)]
    numbers = [bool(first) and first[0][index][1] for index in range(len(header))]
    yield _line([(name, number) for name, number in zip(header, numbers, strict=True)], widths)
    for row in chain(first, cells):
        yield _line(row, widths)


def _line(cells: Iterable[tuple[str, bool]], widths: Iterable[int]) -> str:
    return "  ".join(
        text.rjust(width) if number else text.ljust(width) for (text, number), width in zip(cells, widths, strict=True)
    ).rstrip()


def error_table(groups: Iterable[Mapping[str, Any]]) -> str:
    """Failed items by their last error."""
    rows = [
        (group["count"], group["outcome"], group["error_type"], (group["error_message"] or "")[:SHOWN_OF_A_MESSAGE])
        for group in groups
    ]
    return table(("items", "outcome", "error", "message"), rows)


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
