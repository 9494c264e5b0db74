"""CSV, TSV and Parquet readers."""

from __future__ import annotations

import csv
import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from batchctl.core.errors import InputError
from batchctl.files.readers import BadRecord, Record, digest, open_source


def read(folder: Path, data: bytes, name: str = "items.csv", **options: Any) -> list[Any]:
    """Records as (line, fields), bad ones as (line, reason)."""
    path = folder / name
    path.write_bytes(data)
    return [
        (record.line, record.fields if isinstance(record, Record) else record.reason)
        for record in open_source(str(path), **options)
    ]


LONG = "z" * 200_000


@pytest.mark.parametrize(
    ("data", "records"),
    [
        (b'id,text\n1,"line one\nline two"\n2,"a,b""c"\n', [(2, "1", "line one\nline two"), (4, "2", 'a,b"c')]),
        (b"\xef\xbb\xbfid,text\n1,x\n", [(2, "1", "x")]),
        ("id,text\r\n1,ü\r\n".encode("utf-16"), [(2, "1", "ü")]),
        (b"id,text\r\n007,x\r\n7,y\r\n", [(2, "007", "x"), (3, "7", "y")]),
        (b"id,text\n1," + LONG.encode() + b"\n2,y", [(2, "1", LONG), (3, "2", "y")]),
        (b"\n\nid,text\n\n1,\n  \n2,NaN\n\n", [(5, "1", ""), (7, "2", "NaN")]),
        ("id,text\n1,a\u2028b\u0085c\n".encode(), [(2, "1", "a\u2028b\u0085c")]),
        (b'id,text\n"1","a\r\nb"\r\n', [(2, "1", "a\r\nb")]),
        (b'id;text\r\n1;"a;b"\r\n2;3,5\r\n', [(2, "1", "a;b"), (3, "2", "3,5")]),
    ],
)
def test_csv_is_read_as_it_was_meant(tmp_path: Path, data: bytes, records: list[tuple[int, str, str]]) -> None:
    """Quoted newlines, long cells, BOM, leading zeros, blank lines (field reports 6, 8, 9, 11, 12, 14, 18, 113)."""
    assert read(tmp_path, data) == [(line, {"id": id_, "text": text}) for line, id_, text in records]


def test_tsv_is_the_same_with_tabs(tmp_path: Path) -> None:
    """A comma is text in a TSV file."""
    assert read(tmp_path, b'id\ttext\n1\t"a\tb"\n2\ta,b\n', "items.tsv") == [
        (2, {"id": "1", "text": "a\tb"}),
        (3, {"id": "2", "text": "a,b"}),
    ]


def test_one_column_keeps_its_spaces(tmp_path: Path) -> None:
    """With one column a line of spaces is a value; an empty line is none."""
    assert read(tmp_path, b"text\n  \n\nx\n") == [(2, {"text": "  "}), (4, {"text": "x"})]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (b"1", "1 cell, but the header has 2"),
        (b"1,x,y", "3 cells, but the header has 2"),
        (b"1,a\0b", "zero byte"),
        (b"1,a\xe9b", "byte 4 of the line"),
        (b'1,"a"b', "expected after"),
        (b"1," + b"x" * 300, "longer than 200 bytes"),
        (b'1,"one\n\xe9\nthree"', "not UTF-8"),
    ],
)
def test_a_bad_row_costs_itself_only(tmp_path: Path, row: bytes, said: str) -> None:
    """A broken row is named by the line it starts on; the rows around it are read (field report 3)."""
    records = read(tmp_path, b"id,text\n0,a\n" + row + b"\n2,b\n", max_line_bytes=200)
    assert records[0] == (2, {"id": "0", "text": "a"})
    assert records[1][0] == 3
    assert said in records[1][1]
    assert records[2:] == [(4 + row.count(b"\n"), {"id": "2", "text": "b"})]


def test_an_open_quote_is_named(tmp_path: Path) -> None:
    """A quote that is never closed swallows the rest; where it was opened is said."""
    assert read(tmp_path, b'id,text\n1,x\n2,"open\n3,y\n') == [
        (2, {"id": "1", "text": "x"}),
        (3, "a quote is opened and never closed"),
    ]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"id,text,id\n1,x,y\n", "line 1: the header names 'id' more than once"),
        (b"id,\xe9\n1,x\n", "line 1: not UTF-8"),
        (b'id,"text"x\n1,x\n', "line 1"),
    ],
)
def test_a_header_that_cannot_be_used_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    """A header is everyone's fault: the file is refused."""
    with pytest.raises(InputError, match=said):
        read(tmp_path, data)


def test_a_header_alone_holds_no_items(tmp_path: Path) -> None:
    """Records are counted, not lines (field report 11)."""
    assert read(tmp_path, b"id,text\n") == []


def test_a_csv_says_what_it_was(tmp_path: Path) -> None:
    """Size and digest are known after the reading; blank lines are no items."""
    path = tmp_path / "items.csv"
    path.write_bytes(b"id,text\n\n1,x\n\n")
    source = open_source(str(path))
    assert len(list(source)) == 1
    assert (source.bytes_read, source.sha256) == digest(str(path))


CELL = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.lists(st.tuples(CELL, CELL), max_size=5))
def test_any_text_survives_csv(rows: list[tuple[str, str]]) -> None:
    """What the csv module writes is read back, whatever the text."""
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("id", "text"), *rows])
    with TemporaryDirectory() as folder:
        records = read(Path(folder), text.getvalue().encode())
    assert [(fields["id"], fields["text"]) for _, fields in records] == rows


def test_parquet_becomes_json(tmp_path: Path) -> None:
    """Dates, decimals, NaN and nested values become what JSON can say; the line is the row (field report 14)."""
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    table = pa.table(
        {
            "id": ["007", "7"],
            "n": [1, None],
            "x": [float("nan"), 1.5],
            "when": pa.array([moment, moment], pa.timestamp("ns", "UTC")),
            "day": [moment.date(), None],
            "price": [Decimal("1.10"), Decimal("2.20")],
            "tags": [["a", None], []],
            "deep": [{"k": float("nan")}, None],
        }
    )
    path = tmp_path / "items.parquet"
    parquet.write_table(table, path)
    source = open_source(str(path))
    records = list(source)
    when = "2026-01-02T03:04:05+00:00"
    assert [record.line for record in records] == [1, 2]
    assert [record.fields for record in records if isinstance(record, Record)] == [
        {
            "id": "007", "n": 1, "x": None, "when": when, "day": "2026-01-02", "price": "1.10",
            "tags": ["a", None], "deep": {"k": None},
        },
        {"id": "7", "n": None, "x": 1.5, "when": when, "day": None, "price": "2.20", "tags": [], "deep": None},
    ]  # fmt: skip
    assert (source.bytes_read, source.sha256) == digest(str(path))


def test_a_parquet_value_without_json_is_a_bad_record(tmp_path: Path) -> None:
    """Bytes and infinities cost their own row only."""
    path = tmp_path / "items.parquet"
    parquet.write_table(pa.table({"x": [float("inf"), 1.0, 2.0], "b": pa.array([None, b"x", None])}), path)
    first, second, third = open_source(str(path))
    assert isinstance(first, BadRecord)
    assert "'x'" in first.reason
    assert isinstance(second, BadRecord)
    assert "bytes" in second.reason
    assert third == Record(3, None, {"x": 2.0, "b": None})


@pytest.mark.parametrize("data", [b"PAR1 but not really", b"x"])
def test_a_broken_parquet_is_refused(tmp_path: Path, data: bytes) -> None:
    """A file that is no Parquet is named, with a hint."""
    with pytest.raises(InputError, match=r"items\.parquet: not readable") as caught:
        read(tmp_path, data, "items.parquet")
    assert caught.value.hint


def test_parquet_needs_a_file() -> None:
    """Parquet is read from its end, so a pipe cannot give it."""
    with pytest.raises(InputError, match="standard input"):
        list(open_source("-", format="parquet"))
