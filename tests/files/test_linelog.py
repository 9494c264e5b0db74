"""The result files: crash at any byte, damage, disk full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.errors import StorageError
from batchctl.files.linelog import LineLog

LINES = [json.dumps({"id": name, "text": text}, ensure_ascii=False).encode() for name, text in
         (("a", "eins"), ("b", "grün \U0001f600"), ("c", 'x\\y"z'))]  # fmt: skip


@contextmanager
def opened(path: Path, recorded: int = 0) -> Iterator[LineLog]:
    """A log that is closed again."""
    log = LineLog.open(path, recorded)
    try:
        yield log
    finally:
        log.close()


def tail_lines(log: LineLog) -> list[bytes]:
    """The tail's lines, each of which must stand where it says."""
    data = log.path.read_bytes()
    for offset, length, line in log.tail():
        assert data[offset : offset + length + 1] == line + b"\n"
    return [line for _, _, line in log.tail()]


def test_appended_lines_are_handed_back(tmp_path: Path) -> None:
    """Lines past the recorded point come back on the next open, each once, where they are (field report 163)."""
    path = tmp_path / "out" / "results.jsonl"
    with opened(path) as log:
        places = [log.append(line) for line in LINES]
        assert log.end == sum(len(line) + 1 for line in LINES)
        log.sync()
        assert path.read_bytes() == b"\n".join(LINES) + b"\n"
        assert list(log.tail()) == []
    recorded = places[1][0]
    with opened(path, recorded) as log:
        assert list(log.tail()) == [(*place, line) for place, line in zip(places[1:], LINES[1:], strict=True)]
        log.append(b"{}")
        log.flush()
        assert tail_lines(log) == LINES[1:]
        assert not log.repaired
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_flush_makes_lines_outlive_the_process(tmp_path: Path) -> None:
    """A process that is killed after a flush loses nothing (field report 163)."""
    path = tmp_path / "results.jsonl"
    with opened(path) as log:
        for line in LINES:
            log.append(line)
        assert path.read_bytes() == b""
        log.flush()
        assert path.read_bytes() == b"\n".join(LINES) + b"\n"
        big = b'{"x":"' + b"y" * 300_000 + b'"}'
        log.append(big)
        assert path.stat().st_size == log.end


@given(st.lists(st.dictionaries(st.text(), st.text(), max_size=3), max_size=4), st.data())
def test_a_log_torn_at_any_byte_keeps_its_whole_lines(items: list[dict[str, str]], data: st.DataObject) -> None:
    """Exactly the whole lines survive a cut anywhere, also inside a character (field report 164)."""
    lines = [json.dumps(item, ensure_ascii=False).encode() for item in items]
    whole = b"".join(line + b"\n" for line in lines)
    cut = data.draw(st.integers(0, len(whole)))
    known = data.draw(st.integers(0, len(lines)))
    recorded = sum(len(line) + 1 for line in lines[:known])
    kept = whole[:cut].split(b"\n")
    expected = kept[:-1] + ([kept[-1]] if kept[-1] in lines[len(kept) - 1 : len(kept)] else [])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "results.jsonl"
        path.write_bytes(whole[:cut])
        if cut < recorded:
            with pytest.raises(StorageError, match="shorter than recorded"):
                LineLog.open(path, recorded)
            assert path.read_bytes() == whole[:cut]
            return
        with opened(path, recorded) as log:
            assert tail_lines(log) == expected[known:]
            assert path.read_bytes() == b"".join(line + b"\n" for line in expected)
            assert log.repaired == (len(expected) < len([part for part in kept if part]))
            assert not log.damaged
            log.append(b'{"next":1}')
        assert path.read_bytes() == b"".join(line + b"\n" for line in [*expected, b'{"next":1}'])


@pytest.mark.parametrize("end", [b"\n", b"\n\n", b"\n  \n\n", b"\r\n", b""])
def test_a_torn_line_with_blank_ones_after_it_is_repaired(tmp_path: Path, end: bytes) -> None:
    """A newline after the torn line does not make it damage (field report 166)."""
    path = tmp_path / "results.jsonl"
    path.write_bytes(LINES[0] + b"\n" + LINES[1][:-9] + end)
    with opened(path, len(LINES[0]) + 1) as log:
        assert log.repaired
        assert log.damaged == ()
        assert tail_lines(log) == []
    assert path.read_bytes() == LINES[0] + b"\n"
    assert not log.damaged_path.exists()


@pytest.mark.parametrize("broken", [LINES[1][:-9], b"\0" * 30, b"[1]", b'{"id":"\xff"}', b"[" * 100_000])
@pytest.mark.parametrize("torn", [b"", b'{"id":'])
def test_damage_in_the_middle_is_set_aside(tmp_path: Path, broken: bytes, torn: bytes) -> None:
    """A broken line between good ones is kept elsewhere with its offset, never silently (field report 166)."""
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"\n".join([*LINES[:2], broken, LINES[2], torn]))
    recorded = len(LINES[0]) + 1
    with opened(path, recorded) as log:
        offset = recorded + len(LINES[1]) + 1
        assert log.damaged == (offset,)
        assert log.repaired == bool(torn)
        assert tail_lines(log) == LINES[1:]
        entry = json.loads(log.damaged_path.read_bytes())
        assert entry == {"offset": offset, "line": broken.decode("utf-8", "backslashreplace")}
        log.append(b"{}")
    assert path.read_bytes() == b"".join(line + b"\n" for line in [*LINES, b"{}"])
    assert path.stat().st_mode & 0o777 == log.damaged_path.stat().st_mode & 0o777 == 0o600
    assert {entry.name for entry in tmp_path.iterdir()} == {"results.jsonl", "results.jsonl.damaged"}


def test_recorded_bytes_are_never_changed(tmp_path: Path) -> None:
    """A repair leaves what the state file counts as it is, whatever it holds."""
    path = tmp_path / "results.jsonl"
    recorded = b"not json\r\n\n" + LINES[0] + b"\n"
    path.write_bytes(recorded + b"\n" + LINES[1] + b"\r\nbad\n" + LINES[2] + b"\n")
    with opened(path, len(recorded)) as log:
        assert tail_lines(log) == LINES[1:]
    assert path.read_bytes() == recorded + LINES[1] + b"\n" + LINES[2] + b"\n"


def test_a_file_that_is_not_the_recorded_one_is_refused(tmp_path: Path) -> None:
    """Missing, shorter, or another file: named, and left as it is."""
    path = tmp_path / "results.jsonl"
    with pytest.raises(StorageError, match=r"results\.jsonl is missing") as caught:
        LineLog.open(path, 5)
    assert caught.value.hint
    assert not path.exists()
    path.write_bytes(LINES[0] + b"\n")
    for recorded, said in ((100, "shorter than recorded"), (5, "no line ends at byte 5")):
        with pytest.raises(StorageError, match=said) as caught:
            LineLog.open(path, recorded)
        assert "batchctl doctor" in (caught.value.hint or "")
    assert path.read_bytes() == LINES[0] + b"\n"


def test_only_a_regular_file_is_written(tmp_path: Path) -> None:
    """A link, a pipe or a folder in the way is refused, and what a link points to is untouched."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    link, pipe, folder, dangling = (tmp_path / name for name in ("link", "pipe", "folder", "dangling"))
    link.symlink_to(victim)
    os.mkfifo(pipe)
    folder.mkdir()
    dangling.symlink_to(tmp_path / "nowhere")
    for path in (link, pipe, folder, dangling):
        with pytest.raises(StorageError, match="no regular file"):
            LineLog.open(path, 0)
    assert victim.read_bytes() == b"precious"


def test_a_file_in_the_folders_place_is_named(tmp_path: Path) -> None:
    """An output folder that cannot be made is a storage error, not a traceback."""
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(StorageError, match="out: Not a directory"):
        LineLog.open(tmp_path / "out" / "results.jsonl", 0)


def test_a_staged_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    """Kept lines get new places, in the order asked for; the file is whole and goes on."""
    with opened(tmp_path / "results.jsonl") as log:
        places = [log.append(line) for line in LINES]
        offsets = log.stage([places[2], places[0]])
        assert log.path.read_bytes() == b"".join(line + b"\n" for line in LINES)
        log.adopt()
        assert log.path.read_bytes() == LINES[2] + b"\n" + LINES[0] + b"\n"
        assert list(offsets) == [0, len(LINES[2]) + 1]
        assert log.append(LINES[1])[0] == len(LINES[2]) + len(LINES[0]) + 2
    assert log.path.read_bytes() == b"\n".join([LINES[2], LINES[0], LINES[1]]) + b"\n"


@pytest.mark.parametrize("keep", [0, 1, 2])
@pytest.mark.parametrize("counted", [False, True])
def test_a_process_that_dies_with_a_staged_file_leaves_one_or_the_other(
    tmp_path: Path, keep: int, *, counted: bool
) -> None:
    """What the state file recorded decides which of the two files is the log."""
    path = tmp_path / "errors.jsonl"
    with opened(path) as log:
        places = [log.append(line) for line in LINES]
        log.stage(places[:keep])
    kept = LINES[:keep] if counted else LINES
    recorded = sum(len(line) + 1 for line in kept)
    with opened(path, recorded) as log:
        assert log.end == recorded
        assert not log.repaired
    assert path.read_bytes() == b"".join(line + b"\n" for line in kept)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


FULL = """
import resource, signal, sys
from pathlib import Path
from batchctl.core.errors import StorageError
from batchctl.files.linelog import LineLog
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
log = LineLog.open(Path(sys.argv[1]), 0)
line = b'{"id":"' + b"x" * 290 + b'"}'
for _ in range(5):
    log.append(line)
try:
    log.sync()
except StorageError as error:
    print(error.hint)
if sys.argv[2] == "freed":
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    log.sync()
log.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("after", "lines"), [("full", 3), ("freed", 5)])
def test_no_room_is_said_and_loses_nothing_whole(tmp_path: Path, after: str, lines: int) -> None:
    """A full disk is an error with a way out; whole lines are there, and the rest follows when there is room."""
    path = tmp_path / "results.jsonl"
    ran = subprocess.run([sys.executable, "-c", FULL, str(path), after], capture_output=True, text=True, check=True)
    assert "goes on where it stopped" in ran.stdout
    with opened(path) as log:
        assert len(tail_lines(log)) == lines
        assert log.repaired == (after == "full")
