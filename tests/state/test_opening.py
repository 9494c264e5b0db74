"""Opening a state file: new, old, newer, foreign, damaged, missing."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from batchctl.core.errors import InputError, StateError, StorageError
from batchctl.state.connection import Database, open_journal
from batchctl.state.salvage import damage_of
from batchctl.state.store import Store
from tests.state.making import create_run, plan

MODES = pytest.mark.parametrize("readonly", [False, True], ids=["write", "read"])


def test_a_new_file_is_private(store: Store, path: Path) -> None:
    """The file and its companions are 0600, the folder 0700."""
    create_run(store)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {
        "batchctl.db": 0o600,
        "batchctl.db-wal": 0o600,
        "batchctl.db-shm": 0o600,
    }


def test_reading_creates_nothing(path: Path) -> None:
    """Without a state file a reader says so, and no folder appears."""
    with pytest.raises(InputError, match=r"no state file at .*batchctl\.db") as caught:
        Store.open(path, readonly=True)
    assert caught.value.hint
    assert not path.parent.exists()


def test_an_empty_file_is_a_new_one(path: Path) -> None:
    """A process that died before it filled the file leaves one that is missing to readers and new to writers."""
    path.parent.mkdir()
    path.touch()
    with pytest.raises(InputError, match="no state file"):
        Store.open(path, readonly=True)
    with Store.open(path) as store:
        assert store.runs.all() == []


@MODES
@pytest.mark.parametrize("content", [b"not a database " * 1000, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_garbage_is_left_alone(path: Path, content: bytes, *, readonly: bool) -> None:
    """A damaged file is refused with the way to doctor, and never overwritten (field reports 181, 185)."""
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"batchctl\.db: the state file cannot be read") as caught:
        Store.open(path, readonly=readonly)
    assert "doctor" in str(caught.value.hint)
    assert caught.value.exit_code == 7
    assert path.read_bytes() == content


@MODES
def test_another_programs_database_is_left_alone(path: Path, *, readonly: bool) -> None:
    """A database that is not ours gets no tables of ours."""
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StateError, match="not one of batchctl"):
        Store.open(path, readonly=readonly)
    assert path.read_bytes() == before


@MODES
def test_a_newer_file_is_left_alone(store: Store, path: Path, *, readonly: bool) -> None:
    """A migration this version does not know stops it before it writes."""
    store.close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("INSERT INTO _sqlite_migrations VALUES (99, 'batchctl', 'm099_future', '2030-01-01')")
    connection.close()
    with pytest.raises(StateError, match=r"newer version of batchctl .*m099_future") as caught:
        Store.open(path, readonly=readonly)
    assert "newer version" in str(caught.value.hint)
    assert caught.value.exit_code == 7


def test_an_older_file_is_not_read_as_it_is(store: Store, path: Path) -> None:
    """A reader does not migrate; it says which command does."""
    store.close()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("DELETE FROM _sqlite_migrations")
    connection.close()
    with pytest.raises(StateError, match="older version") as caught:
        Store.open(path, readonly=True)
    assert "poll" in str(caught.value.hint)


def test_a_damaged_page_is_found(store: Store, path: Path) -> None:
    """A page of rubbish in the middle is an error with a hint where it is read, and doctor's check names it."""
    plan(store, items=2000, per_batch=2000)
    store.close()
    with path.open("r+b") as file:
        size = file.seek(0, 2)
        for page in range(size // 8192, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xa5" * 4096)
    assert damage_of(path)
    with Store.open(path, readonly=True) as damaged, pytest.raises(StateError, match="malformed") as caught:
        damaged.items.page(1)
    assert "doctor" in str(caught.value.hint)


def test_a_sound_file_has_no_damage(store: Store, path: Path) -> None:
    """The check of the whole file finds nothing in a sound one."""
    plan(store)
    assert damage_of(path) == []


def test_a_file_in_the_way_of_the_folder(tmp_path: Path) -> None:
    """A file where the folder should be is named."""
    (tmp_path / "state").write_text("x", encoding="utf-8")
    with pytest.raises(StateError, match="state") as caught:
        Store.open(tmp_path / "state" / "batchctl.db")
    assert "--state" in str(caught.value.hint)


def test_a_folder_in_the_way_of_the_file(path: Path) -> None:
    """A folder under the file's name is an error of the file system, with a hint."""
    path.mkdir(parents=True)
    with pytest.raises(StateError, match="file system refused") as caught:
        Store.open(path)
    assert "--state" in str(caught.value.hint)


def test_wal_is_on(store: Store, path: Path) -> None:
    """The usual journal is WAL, with the settings that hold for every connection."""
    ask = store._db.row
    assert ask("PRAGMA journal_mode") == ("wal",)
    assert ask("PRAGMA foreign_keys") == (1,)
    assert ask("PRAGMA busy_timeout") == (5000,)


def test_without_wal_every_commit_is_synced(store: Store, path: Path) -> None:
    """Where the file system refuses WAL the mode it answers is seen, and sync is full (field reports 179, 180)."""
    plan(store)
    store._db.connection.execute("PRAGMA journal_mode = DELETE")
    store.close()
    # This VFS has no shared memory, as some network file systems have none, so SQLite refuses WAL.
    connection, wal = open_journal(
        lambda: sqlite3.connect(f"file:{path}?vfs=unix-dotfile", uri=True, isolation_level=None)
    )
    assert not wal
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("truncate",)
    fallen = Store(Database(path, connection, wal=wal))
    for durable in (False, True):
        with fallen.transaction(durable=durable):
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
            fallen.batches.next_number(1)
    fallen.runs.set_needs(1, "look", fallen.runs.all()[0].created_at)
    fallen.close()
    with Store.open(path, readonly=True) as reader:
        assert reader.runs.all()[0].needs == "look"


@pytest.mark.parametrize("largest", [4096, 16_384], ids=["switching fails", "first use fails"])
def test_wal_that_fails_with_an_error(path: Path, largest: int) -> None:
    """A file system where WAL is an I/O error gets the other journal too, and others can use the file."""
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE probe (a)")
    connection.close()
    child = os.fork()
    if child == 0:  # pragma: no cover  # a process whose files may not grow to the size of WAL's shared memory
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
            connection, wal = open_journal(lambda: sqlite3.connect(path, isolation_level=None))
            mode = connection.execute("PRAGMA journal_mode").fetchone()
            other = sqlite3.connect(path, isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            os._exit(0 if not wal and mode == ("truncate",) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_full_disk_is_named(store: Store) -> None:
    """No room is told as such, with nothing half written, and the store goes on when there is room again."""
    (pages,) = store._db.row("PRAGMA page_count") or (0,)
    store._db.connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match="disk is full"):
        plan(store, items=5000, per_batch=5000)
    store._db.connection.execute("PRAGMA max_page_count = 100000")
    run = store.runs.get("night")
    assert run is not None
    assert store.items.page(run.id) == []
    store.runs.purge(run.id)
    plan(store)


def test_a_name_the_file_system_refuses(tmp_path: Path) -> None:
    """A file that cannot be created is told with the reason."""
    with pytest.raises(StateError, match="cannot be created: File name too long"):
        Store.open(tmp_path / ("x" * 300))


def test_reading_is_quick_to_start(store: Store, path: Path) -> None:
    """A reader imports neither sqlite-utils nor the migrations."""
    store.close()
    code = (
        "import sys; from pathlib import Path; from batchctl.state.store import Store;"
        f"Store.open(Path({str(path)!r}), readonly=True).close(); Store.open(Path({str(path)!r})).close();"
        "sys.exit(sorted({'sqlite_utils', 'batchctl.state.migrations'} & sys.modules.keys()) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


def test_readers_cannot_write(store: Store, path: Path) -> None:
    """A store opened to read refuses to change anything."""
    with Store.open(path, readonly=True) as reader, pytest.raises(StateError, match="readonly"):
        create_run(reader)
