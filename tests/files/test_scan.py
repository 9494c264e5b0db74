"""Walking the lines of a result file, and saving one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.errors import StorageError
from batchctl.files.download import save
from batchctl.files.scan import scan_lines


def scan(path: Path, **options: int) -> list[tuple[int, bytes, bool]]:
    """The lines as tuples."""
    return [(line.offset, line.raw, line.complete) for line in scan_lines(path, **options)]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"\n\r\n  \n", []),
        (b"a\nb\n", [(0, b"a", True), (2, b"b", True)]),
        (b"a\r\n\r\nb", [(0, b"a", True), (5, b"b", False)]),
        ("x\u2028y\u0085z\x0b\n".encode(), [(0, "x\u2028y\u0085z\x0b".encode(), True)]),
        (b"a\rb\n", [(0, b"a\rb", True)]),
    ],
)
def test_lines_end_at_newlines_only(tmp_path: Path, data: bytes, lines: list[tuple[int, bytes, bool]]) -> None:
    """CRLF and blank lines are passed, Unicode breaks are text, an unended last line is marked (104, 107, 111)."""
    path = tmp_path / "results"
    path.write_bytes(data)
    assert scan(path) == lines


@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line)), st.booleans())
def test_offsets_point_at_the_lines(lines: list[bytes], ended: bool) -> None:  # hypothesis
    """Any bytes: each line stands at its offset, none is lost."""
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "results"
        path.write_bytes(data)
        found = scan(path)
        for offset, raw, complete in found:
            assert data[offset : offset + len(raw)] == raw
            assert scan(path, start=offset)[0] == (offset, raw, complete)
    assert [raw.strip() for _, raw, _ in found] == [line.strip() for line in lines if line.strip()]


def test_a_line_over_the_limit_is_cut_and_passed(tmp_path: Path) -> None:
    """A line too long to be a result shows as an odd one; the next is where it is."""
    path = tmp_path / "results"
    path.write_bytes(b"x" * 50 + b"\nok\n" + b"y" * 50)
    assert scan(path, max_line_bytes=10) == [(0, b"x" * 10, True), (51, b"ok", True), (54, b"y" * 10, False)]


def test_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    """The path is named."""
    with pytest.raises(StorageError, match="nowhere"):
        scan(tmp_path / "nowhere")


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return [entry.name for entry in folder.iterdir()]


async def chunks(*parts: bytes, fail: BaseException | None = None) -> AsyncIterator[bytes]:
    """Chunks as a provider streams them."""
    for part in parts:
        yield part
    if fail is not None:
        raise fail


async def test_any_chunking_saves_the_same_lines(tmp_path: Path) -> None:
    r"""Chunks that end at `\r`, or hold a byte each, change nothing (field report 104)."""
    data = b'{"a":1}\r\n{"b":"\xe2\x80\xa8"}\r\n'
    for size in (1, 8, 100):
        path = tmp_path / "downloads" / f"{size}"
        assert await save(chunks(*(data[at : at + size] for at in range(0, len(data), size))), path) == len(data)
        assert path.read_bytes() == data
        assert path.stat().st_mode & 0o777 == 0o600
        assert [raw for _, raw, _ in scan(path)] == data.rstrip(b"\r\n").split(b"\r\n")


@pytest.mark.parametrize("failure", [OSError("cut"), asyncio.CancelledError(), ValueError("odd")])
async def test_a_stream_that_breaks_leaves_nothing(tmp_path: Path, failure: BaseException) -> None:
    """Half a download is never taken for a whole one, and the error is the stream's own (field reports 107, 173)."""
    path = tmp_path / "results"
    with pytest.raises(type(failure)):
        await save(chunks(b"half", fail=failure), path)
    assert names(tmp_path) == []


async def test_leftovers_are_not_trusted(tmp_path: Path) -> None:
    """What a killed download left is overwritten (field report 173)."""
    (tmp_path / "results.part").write_bytes(b"much more than the new one")
    await save(chunks(b"new"), tmp_path / "results")
    assert (tmp_path / "results").read_bytes() == b"new"
    assert names(tmp_path) == ["results"]


@pytest.mark.slow
def test_a_large_result_file_is_saved_and_walked_in_constant_memory(tmp_path: Path) -> None:
    """200 MB of lines, some of them 5 MB, pass through a process that never holds 90 (field report 109)."""
    code = (
        "import asyncio, re, sys\n"
        "from pathlib import Path\n"
        "from batchctl.files.download import save\n"
        "from batchctl.files.scan import scan_lines\n"
        "async def chunks():\n"
        "    for number in range(200):\n"
        "        yield b'x' * 1_000_000 + (b'' if number % 5 else b'\\n')\n"
        "path = Path(sys.argv[1])\n"
        "asyncio.run(save(chunks(), path))\n"
        "print(sum(len(line.raw) for line in scan_lines(path)))\n"
        "print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])\n"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "results")]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=True)
    size, peak = map(int, ran.stdout.split())
    assert size == 200_000_000
    assert peak < 90_000
