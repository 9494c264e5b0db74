"""Answers as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from batchctl.cli.spreadsheet import csv_chunks
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
SCHEMA = {"type": "object", "properties": {"label": {"type": "string"}, "tags": {"type": "array"}}}


def result(id_: str, text: str, output: object = None) -> bytes:
    """A line of results.jsonl, as far as it matters here."""
    line = {"id": id_, "output": output, "text": text, "stop_reason": "end_turn", "model": "m", "cost_usd": 0.5}
    return json.dumps(line).encode() + b"\n"


@given(st.lists(st.tuples(st.text(), st.text())), st.integers(1, 50))
def test_any_text_survives_and_no_cell_is_a_formula(rows: list[tuple[str, str]], size: int) -> None:
    """However the bytes are cut; what would be a formula begins with an apostrophe."""
    data = b"".join(result(*row) for row in rows)
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    text = "".join(csv_chunks(chunks, None))
    header, *found = csv.reader(io.StringIO(text, newline=""))
    assert header == ["id", "text", "stop_reason", "model", "cost_usd"]
    assert [tuple(row[:2]) for row in found] == [(quoted(id_), quoted(text)) for id_, text in rows]


def quoted(text: str) -> str:
    """Text as its cell must hold it."""
    return "'" + text if text[:1] and text[0] in "=+-@\t\r" else text


def test_properties_of_the_schema_are_columns() -> None:
    """A reply without one, or that is no object, leaves its cell empty."""
    outputs: list[object] = [{"label": "=1+1", "tags": ["x", "y"]}, {"label": "ok"}, [1]]
    lines = [result(str(number), "a", output) for number, output in enumerate(outputs)]
    rows = list(csv.DictReader(io.StringIO("".join(csv_chunks(lines, SCHEMA)))))
    assert [(row["label"], row["tags"]) for row in rows] == [("'=1+1", '["x","y"]'), ("ok", ""), ("", "")]


def test_a_run_goes_back_into_a_spreadsheet(make_desk: MakeDesk) -> None:
    """In the order of the input where asked; two forms at once are none."""
    desk = make_desk(speed=36_000)
    desk.start("run", desk.items([{"id": "=cmd()", "text": "x"}, {"id": "b", "text": "y"}]))
    rows = list(csv.DictReader(io.StringIO(desk("results", "r", "--csv", "--ordered").out)))
    assert [row["id"] for row in rows] == ["'=cmd()", "b"]
    assert all(row["text"] and float(row["cost_usd"]) > 0 for row in rows)
    assert "give one" in desk("results", "r", "--csv", "--json", code=2).err
