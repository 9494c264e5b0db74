"""A damaged state file: what can still be read goes into a new one, which takes its place only when it is whole."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from batchctl.state.connection import Database, Translating, connect_to_read, open_writable
from batchctl.state.verify import verify

TABLES = {
    "runs": "id",
    "items": "run_id, seq",
    "item_ids": "run_id, id",
    "batches": "run_id, number",
    "attempts": "run_id, seq, number",
    "outcomes": "run_id, lane, outcome",
    "events": "id",
}
"""Every table and its key, parents first."""

SIDE_FILES = ("-wal", "-shm")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@dataclass(slots=True)
class Salvage:
    """What came of reading a damaged state file.

    Args:
        fresh: the new file beside it.
        rows: rows read, by table.
        problems: why the new file is not whole; empty where it is.
    """

    fresh: Path
    rows: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def damage_of(path: Path) -> list[str]:
    """What SQLite finds wrong in a state file, also one that cannot be opened; empty for a sound one.

    Raises:
        BatchctlError: it could not be looked at (busy, no room, no permission), which says nothing about it.
    """
    with Translating(path):
        try:
            with closing(connect_to_read(path)) as connection:
                found = [str(text) for (text,) in connection.execute("PRAGMA integrity_check(20)")]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in _DAMAGED:
                raise
            return [str(error)]
    return [] if found == ["ok"] else found


def salvage(path: Path) -> Salvage:
    """Read what is left of a damaged state file into a new one beside it; the damaged one is only read.

    Raises:
        BatchctlError: the new file could not be written.
    """
    fresh = path.with_name(f"{path.name}.rebuilt")
    for name in (fresh, *(fresh.with_name(fresh.name + side) for side in SIDE_FILES)):
        name.unlink(missing_ok=True)
    result = Salvage(fresh)
    with Translating(fresh), closing(open_writable(fresh).connection) as new, closing(connect_to_read(path)) as old:
        for table, key in TABLES.items():
            result.rows[table] = _copy(old, new, table, key)
        database = Database(fresh, new, wal=False)
        if not result.rows["runs"]:
            result.problems.append("no run could be read from it")
        result.problems += [str(text) for (text,) in database.rows("PRAGMA integrity_check(20)") if text != "ok"]
        for run_id, name in database.rows("SELECT id, name FROM runs WHERE state <> 'planning'"):
            result.problems += [f"run {name}: {problem}" for problem in verify(database, run_id)]
    return result


def put_in_place(path: Path, fresh: Path, stamp: str) -> Path:
    """Keep the damaged file (and its journal) aside and give the new one its name; returns where it is kept."""
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    for side in ("", *SIDE_FILES):
        old = path.with_name(path.name + side)
        if old.exists():
            shutil.copy2(old, aside.with_name(aside.name + side))
    for side in SIDE_FILES:
        path.with_name(path.name + side).unlink(missing_ok=True)  # a journal must never meet another file
    fresh.replace(path)
    return aside


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, table: str, key: str) -> int:
    """Copy the rows of a table from its start and, where that breaks off, from its end."""
    names = [str(row[1]) for row in new.execute(f"PRAGMA table_info({table})")]
    insert = f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(names))})"  # noqa: S608  # our own tables
    columns = ", ".join(names)
    new.execute("BEGIN")
    for order in (key, ", ".join(f"{name} DESC" for name in key.split(", "))):
        rows = _Readable(old, f"SELECT {columns} FROM {table} NOT INDEXED ORDER BY {order}")  # noqa: S608
        new.executemany(insert, rows)
        if rows.whole:
            break
    new.execute("COMMIT")
    return int(new.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608


class _Readable:
    """The rows of a query up to the place where the file is damaged; `whole` where there was none."""

    def __init__(self, old: sqlite3.Connection, sql: str) -> None:
        self._old = old
        self._sql = sql
        self.whole = False

    def __iter__(self) -> Iterator[tuple[object, ...]]:
        try:
            yield from self._old.execute(self._sql)
        except sqlite3.DatabaseError:
            return
        self.whole = True
