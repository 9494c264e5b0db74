"""JSONL readers: encodings, odd lines, bounds, identity."""

from __future__ import annotations

import bz2
import errno
import gzip
import hashlib
import io
import json
import lzma
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from batchctl.core.errors import InputError
from batchctl.files.readers import BadRecord, Record, decode, digest, open_source

A = b'{"id":"a","text":"x"}'
B = b'{"id":"b","text":"y"}'


def write(folder: Path, data: bytes, name: str = "items.jsonl") -> str:
    """A file with exactly these bytes."""
    path = folder / name
    path.write_bytes(data)
    return str(path)


def read(folder: Path, data: bytes, name: str = "items.jsonl", **options: Any) -> list[Record | BadRecord]:
    """All records of a file with these bytes."""
    return list(open_source(write(folder, data, name), **options))


def raws(records: list[Record | BadRecord]) -> list[tuple[int, bytes]]:
    """Line and bytes of records that must all be good."""
    assert all(isinstance(record, Record) for record in records), records
    return [(record.line, record.raw) for record in records if isinstance(record, Record) and record.raw]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (A + b"\n" + B + b"\n", [1, 2]),
        (A + b"\n" + B, [1, 2]),
        (b"\xef\xbb\xbf" + A + b"\n" + B, [1, 2]),
        (A + b"\r\n" + B + b"\r\n", [1, 2]),
        (A + b"\n\n   \n" + B + b"\n\n", [1, 4]),
        (b"\n\n" + A + b"\n\t\n  " + B + b"  \n", [3, 5]),
        ((A + b"\n" + B).decode().encode("utf-16"), [1, 2]),
        (b"\xff\xfe" + (A + b"\r\n" + B + b"\r\n").decode().encode("utf-16-le"), [1, 2]),
        (b"\xfe\xff" + (A + b"\n" + B).decode().encode("utf-16-be"), [1, 2]),
    ],
)
def test_every_spelling_of_two_items(tmp_path: Path, data: bytes, lines: list[int]) -> None:
    """BOM, CRLF, blank lines, UTF-16 and a missing last newline change nothing (field reports 1, 5, 18)."""
    assert raws(read(tmp_path, data)) == list(zip(lines, [A, B], strict=True))


def test_an_odd_line_costs_itself_only(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are named by line and byte; the neighbours are read (field reports 3, 15)."""
    first, bad, last = read(tmp_path, A + b'\n{"id":"\xe9"}\n' + B + b"\n")
    assert isinstance(first, Record)
    assert isinstance(last, Record)
    assert isinstance(bad, BadRecord)
    assert bad.line == 2
    assert "byte 8 of the line (0xe9)" in bad.reason
    assert "iconv" in bad.reason
    assert last.line == 3


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_only_newlines_end_a_line(tmp_path: Path, mark: str) -> None:
    """Characters other readers break lines at are text (field reports 111, 113)."""
    line = json.dumps({"id": "a", "text": f"x{mark}y"}, ensure_ascii=False).encode()
    assert raws(read(tmp_path, line + b"\n" + B)) == [(1, line), (2, B)]


@pytest.mark.parametrize(("limit", "good"), [(len(A), True), (len(A) - 1, False)])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_line_over_the_limit_is_a_bad_record(tmp_path: Path, limit: int, end: bytes, *, good: bool) -> None:
    """The limit counts the line without its end, to the byte; the next line is read."""
    records = read(tmp_path, b"{}\n" + A + end + (b"{}" if end else b""), max_line_bytes=limit)
    assert isinstance(records[1], Record if good else BadRecord)
    assert [record.line for record in records] == ([1, 2, 3] if end else [1, 2])


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": zstandard.ZstdCompressor().compress,
}
MANY = b"".join(b'{"id":"%d","text":"%s"}\n' % (number, os.urandom(30).hex().encode()) for number in range(2000))


@pytest.mark.parametrize("kind", PACKERS)
@pytest.mark.parametrize("named", [True, False])
def test_compressed_input_is_told_by_its_bytes(tmp_path: Path, kind: str, *, named: bool) -> None:
    """Compression is seen in the content, members that follow one another are all read, the digest is the file's."""
    pack = PACKERS[kind]
    stored = pack(b"\xef\xbb\xbf" + MANY) + pack(A)
    path = write(tmp_path, stored, f"items.jsonl.{kind}" if named else "items.jsonl")
    source = open_source(path)
    records = raws(list(source))
    assert [raw for _, raw in records] == [*MANY.split(b"\n")[:-1], A]
    assert source.sha256 == hashlib.sha256(stored).hexdigest()
    assert source.bytes_read == len(stored)


@pytest.mark.parametrize("kind", PACKERS)
def test_cut_compressed_input_is_refused(tmp_path: Path, kind: str) -> None:
    """A copy that broke off is an error, never a shorter list (field report 107)."""
    with pytest.raises(InputError, match="damaged or cut short"):
        read(tmp_path, PACKERS[kind](MANY)[:-20], f"items.jsonl.{kind}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", PACKERS)
def test_a_bomb_is_read_in_constant_memory(tmp_path: Path, kind: str) -> None:
    """One line of 150 MB inside a tiny file is a bad record; memory stays near the line limit."""
    path = tmp_path / f"bomb.jsonl.{kind}"
    path.write_bytes(PACKERS[kind](b"x" * 150_000_000 + b"\n" + A + b"\n"))
    code = (
        "import re, sys\n"
        "from batchctl.files.readers import open_source\n"
        "print([type(r).__name__ for r in open_source(sys.argv[1], max_line_bytes=1 << 20)])\n"
        "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    kinds, peak = ran.stdout.split("\n")[:2]
    assert kinds == "['BadRecord', 'Record']"
    assert int(peak) < 120_000


def test_the_identity_comes_with_the_reading(tmp_path: Path) -> None:
    """Size, digest and time of change are known after one pass and equal those of a second."""
    path = write(tmp_path, MANY)
    source = open_source(path)
    for _ in source:
        pass
    assert (source.bytes_read, source.sha256) == digest(path) == (len(MANY), hashlib.sha256(MANY).hexdigest())
    assert source.modified_ns == Path(path).stat().st_mtime_ns


@pytest.mark.parametrize("name", ["items.jsonl", "items.csv"])
def test_no_input_is_refused(tmp_path: Path, name: str) -> None:
    """No file, a folder, an empty file: each is named, with a way out."""
    (tmp_path / "folder.jsonl").mkdir()
    cases = {
        str(tmp_path / f"nowhere-{name}"): "No such file",
        str(tmp_path / "folder.jsonl"): "is a folder",
        write(tmp_path, b"", name): "no items",
    }
    for path, said in cases.items():
        with pytest.raises(InputError, match=said) as caught:
            open_source(path)
        assert path in caught.value.message
        assert caught.value.hint


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'[\n  {"id": "a"}\n]\n', "one JSON document"),
        (b'{\n  "id": "a"\n}\n', "one JSON document"),
        ('{"id":"a"}\n'.encode("utf-16-le"), "not UTF-8"),
        ('{"id":"a"}\n'.encode("utf-32"), "not UTF-8"),
        (b"\xff\xfe" + A + b"\n" + b"x", "not UTF-16"),
        (gzip.compress(b"", mtime=0), None),
    ],
)
def test_the_wrong_kind_of_file_is_named(tmp_path: Path, data: bytes, said: str | None) -> None:
    """A file that is no JSONL as a whole is refused once, not line by line (field report 18)."""
    if said is None:
        assert read(tmp_path, data) == []
        return
    with pytest.raises(InputError, match=said):
        read(tmp_path, data)


@pytest.mark.parametrize(("name", "format_"), [("items.txt", None), ("items.jsonl", "xml")])
def test_an_unknown_format_is_refused(tmp_path: Path, name: str, format_: str | None) -> None:
    """A name that does not tell the format asks for --format."""
    with pytest.raises(InputError, match="format"):
        open_source(write(tmp_path, A, name), format=format_)


def test_a_fifo_is_read_as_it_is_written(tmp_path: Path) -> None:
    """The first item comes out before the writer has written the second (never read to the end first)."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    seen = threading.Event()

    def write_slowly() -> None:
        with path.open("wb", buffering=0) as pipe:
            pipe.write(A + b"\n")
            seen.wait(20)
            pipe.write(B + b"\n")

    writer = threading.Thread(target=write_slowly)
    writer.start()
    records = iter(open_source(str(path)))
    first = next(records)
    assert not seen.is_set()
    seen.set()
    rest = list(records)
    writer.join()
    assert raws([first, *rest]) == [(1, A), (2, B)]


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` is standard input, with the same identity as a file."""
    data = A + b"\n" + B + b"\n"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    source = open_source("-")
    assert raws(list(source)) == [(1, A), (2, B)]
    assert (source.bytes_read, source.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    assert digest("-") == (source.bytes_read, source.sha256)


def test_empty_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty pipe holds no items."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(InputError, match="no items"):
        list(open_source("-"))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"[1,2,3]", "not a JSON object but an array"),
        (b"null", "not a JSON object but null"),
        (b'"hi"', "not a JSON object but a string"),
        (b"true", "not a JSON object but a boolean"),
        (b"12", "not a JSON object but a number"),
        (b"1.5", "not a JSON object but a number"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": [-Infinity]}', "-Infinity"),
        (b'{"a": 1e999}', "1e999"),
        (b'{"a": ', "not JSON"),
        (b'{"a": 1} x', "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": "\x00"}', "not JSON"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deep"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"x":"\\ud83d","a":' + b"[" * 100_000, "nested too deep|not JSON"),
    ],
)
def test_a_line_that_is_no_object_says_why(raw: bytes, said: str) -> None:
    """Each kind of unusable line has a reason (field reports 3, 14)."""
    with pytest.raises(ValueError, match=said):
        decode(Record(1, raw))


@pytest.mark.parametrize(
    ("raw", "fields", "repaired"),
    [
        (rb'{"t": "abc \ud83d xyz"}', {"t": "abc \ufffd xyz"}, True),
        (rb'{"t": ["\udc00\ud800"], "n": 1}', {"t": ["\ufffd\ufffd"], "n": 1}, True),
        (rb'{"\ud83d": {"k": "\ud83d"}}', {"\ufffd": {"k": "\ufffd"}}, True),
        (rb'{"t": "\ud83d\ude00 \ud83d"}', {"t": "\U0001f600 \ufffd"}, True),
        (rb'{"t": "\ud83d\ude00"}', {"t": "\U0001f600"}, False),
        (rb'{"t": "\\ud83d"}', {"t": "\\ud83d"}, False),
        (rb'{"a": 1, "a": 2}', {"a": 2}, False),
        (b'{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}, False),
    ],
)
def test_lone_surrogates_are_repaired(raw: bytes, fields: dict[str, Any], *, repaired: bool) -> None:
    """Half a pair becomes U+FFFD and is reported; everything else is untouched (field report 15)."""
    assert decode(Record(1, raw)) == (fields, repaired)
    json.dumps(fields, ensure_ascii=False).encode()


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(st.lists(st.dictionaries(st.text(), JSON_VALUES, max_size=4), min_size=1, max_size=5), st.booleans())
def test_any_items_survive(items: list[dict[str, Any]], ascii_only: bool) -> None:  # hypothesis
    """What is written as JSONL is read back, whatever the text."""
    from tempfile import TemporaryDirectory

    lines = [json.dumps(item, ensure_ascii=ascii_only).encode("utf-8", "replace") for item in items]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "items.jsonl"
        path.write_bytes(b"\n".join(lines))
        back = [decode(record)[0] for record in open_source(str(path)) if isinstance(record, Record)]
    assert back == items


@pytest.mark.slow
def test_the_locale_changes_nothing(tmp_path: Path) -> None:
    """Under a C locale without UTF-8 mode, text is read and written the same (field report 17)."""
    item = {"id": "日本", "text": "emoji \U0001f600 und Grüße"}
    jsonl = write(tmp_path, json.dumps(item, ensure_ascii=False).encode() + b"\n")
    csv = write(tmp_path, ",".join(item).encode() + b"\n" + ",".join(item.values()).encode() + b"\n", "items.csv")
    code = (
        "import sys, json\n"
        "from batchctl.files.readers import decode, open_source\n"
        "print(json.dumps([decode(record)[0] for path in sys.argv[1:] for record in open_source(path)]))\n"
    )
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", code, jsonl, csv], capture_output=True, text=True, check=True, env=environment
    )
    assert json.loads(ran.stdout) == [item, item]


class Failing(io.BytesIO):
    """A stream whose device fails."""

    def readinto1(self, buffer: object, /) -> int:  # noqa: ARG002  # the protocol's signature
        """Fail."""
        raise OSError(errno.EIO, "Input/output error")


def test_a_read_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device error while reading is a refusal, not a traceback."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Failing(A)))
    with pytest.raises(InputError, match="-: Input/output error"):
        list(open_source("-"))
