"""The spool: what is written is read back, as lines and as slices."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.errors import StorageError
from batchctl.files.spool import SpoolWriter, open_slices, read_line


def test_lines_are_where_append_said(tmp_path: Path) -> None:
    r"""Every line ends with exactly one `\n` and stands at its offset; the file is private."""
    lines = [b"one", b"", b"three" * 100_000, "grün".encode()]
    spool = SpoolWriter(tmp_path / "work" / "spool.jsonl")
    offsets = [spool.append(line) for line in lines]
    spool.sync()
    assert spool.path.read_bytes() == b"\n".join(lines) + b"\n"
    assert spool.size == spool.path.stat().st_size
    with spool.path.open("rb") as file:
        assert [read_line(file, at, len(line)) for at, line in zip(offsets, lines, strict=True)] == lines
    spool.close()
    assert spool.path.stat().st_mode & 0o777 == 0o600
    assert spool.path.parent.stat().st_mode & 0o777 == 0o700


def test_a_second_writer_starts_afresh(tmp_path: Path) -> None:
    """What a dead plan left is gone."""
    for text in (b"a long line of a plan that died", b"new"):
        spool = SpoolWriter(tmp_path / "spool.jsonl")
        assert spool.append(text) == 0
        spool.sync()
        spool.close()
    assert spool.path.read_bytes() == b"new\n"


@given(
    st.binary(min_size=1, max_size=200),
    st.lists(st.tuples(st.integers(0, 199), st.integers(0, 50)), max_size=12),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 60)), max_size=6),
)
def test_slices_are_the_ranges_one_after_another(
    data: bytes, ranges: list[tuple[int, int]], reads: list[tuple[int, int]]
) -> None:
    """Any ranges, any seeks: the same bytes as the concatenation."""
    ranges = [(start, min(length, len(data) - start)) for start, length in ranges if start < len(data)]
    whole = b"".join(data[start : start + length] for start, length in ranges)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "spool"
        path.write_bytes(data)
        with open_slices(path, iter(ranges)) as stream:
            assert stream.read() == whole
            assert stream.seek(0, os.SEEK_END) == len(whole) == stream.tell()
            for position, size in reads:
                stream.seek(position)
                assert stream.read(size) == whole[position : position + size]
            stream.seek(0)
            assert b"".join(stream) == whole
            assert not stream.writable()


def test_neighbouring_lines_cost_nothing(tmp_path: Path) -> None:
    """A batch of lines that follow one another is one range, however many there are."""
    path = tmp_path / "spool"
    path.write_bytes(b"12345\n" * 1000)
    with open_slices(path, ((number * 6, 6) for number in range(1000))) as stream:
        assert len(stream.raw._offsets) == 1  # type: ignore[attr-defined]
        assert stream.read() == path.read_bytes()


def test_a_cut_spool_is_noticed(tmp_path: Path) -> None:
    """Nothing shorter than recorded is ever sent."""
    path = tmp_path / "spool"
    path.write_bytes(b"1234\n")
    with open_slices(path, [(0, 5), (5, 5)]) as stream, pytest.raises(StorageError, match="shorter than recorded"):
        stream.read()
    with path.open("rb") as file, pytest.raises(StorageError, match="were recorded"):
        read_line(file, 3, 10)
    with pytest.raises(StorageError, match="nowhere is missing"):
        open_slices(tmp_path / "nowhere", [(0, 1)])


def test_no_room_is_said() -> None:
    """A full disk is an error with a way out, while lines are appended and when they are synced."""
    spool = SpoolWriter(Path("/dev/full"))
    with pytest.raises(StorageError, match="No space left") as caught:
        spool.append(b"x" * 300_000)
    assert "free space" in (caught.value.hint or "")
    spool.append(b"small")
    for step in (spool.sync, spool.close):
        with pytest.raises(StorageError, match="No space left"):
            step()
