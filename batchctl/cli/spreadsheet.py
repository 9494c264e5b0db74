"""Answers as CSV for spreadsheets, in which no cell is a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

COLUMNS = ("id", "text", "stop_reason", "model", "cost_usd")
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes a spreadsheet take a cell's text for more than text


def csv_chunks(chunks: Iterable[bytes], schema: Mapping[str, Any] | None) -> Iterator[str]:
    """The lines of results.jsonl as CSV, a header first.

    Args:
        chunks: the file's bytes, cut anywhere.
        schema: what every reply met; each property it names gets a column of its own.
    """
    properties = (schema or {}).get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    text = io.StringIO()
    write = csv.writer(text, lineterminator="\r\n").writerow
    write([*COLUMNS, *map(_cell, names)])
    for chunk in _whole_lines(chunks):
        for line in chunk.split(b"\n"):
            result = msgspec.json.decode(line)
            output = result["output"] if isinstance(result["output"], dict) else {}
            write([_cell(result[name]) for name in COLUMNS] + [_cell(output.get(name)) for name in names])
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        whole, newline, rest_of_chunk = chunk.rpartition(b"\n")
        if newline:
            yield rest + whole
            rest = rest_of_chunk
        else:
            rest += chunk


def _cell(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        value = msgspec.json.encode(value).decode()
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
