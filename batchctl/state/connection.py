"""One SQLite connection: how it is opened, its transactions, and the driver's errors in our words."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

from batchctl.core.errors import BatchctlError, InputError, StateError, StorageError
from batchctl.state.schema import APPLICATION_ID, MIGRATION_NAMES, MIGRATION_SET

BUSY_MS = 5000
CACHE_KIB = 16_000

Row = tuple[Any, ...]


def translate(path: Path, error: sqlite3.Error) -> BatchctlError:
    """The driver's error as one of ours; the file itself is never touched."""
    code = error.sqlite_errorcode & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StateError(
            f"{path}: another program held the state file for more than {BUSY_MS // 1000} s",
            hint="wait for it to finish, then give the same command again",
        )
    if code == sqlite3.SQLITE_FULL:
        return StorageError(f"{path}: the disk is full", hint="free some space, then give the same command again")
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return StateError(
            f"{path}: the file system refused the state file: {error}",
            hint="check its permissions and the room there is (a full disk, a limit on file sizes); keep it on a local "
            "disk (--state FILE), not on a network share",
        )
    return StateError(
        f"{path}: the state file cannot be read: {error}",
        hint="`batchctl doctor` examines it; the file was left as it is",
    )


class Translating:
    """Raises the driver's errors as ours. Broken constraints and our own mistakes in SQL pass as they are."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, sqlite3.Error) or isinstance(
            error, (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError)
        ):
            return
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF != sqlite3.SQLITE_ERROR:
            raise translate(self._path, error) from error


class Database:
    """A connection with explicit transactions. Use it from the thread that opened it."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, wal: bool) -> None:
        self.path = path
        self.connection = connection
        self._errors = Translating(path)
        self._wal = wal
        self._depth = 0
        self._durable = False

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[Row]:
        """All rows of a query."""
        with self._errors:
            return self.connection.execute(sql, params).fetchall()

    def row(self, sql: str, params: Sequence[Any] = ()) -> Row | None:
        """The first row of a query, if there is one."""
        with self._errors:
            row: Row | None = self.connection.execute(sql, params).fetchone()
        return row

    def change(self, sql: str, params: Sequence[Any] = ()) -> int:
        """Run one changing statement and return the number of rows it changed."""
        with self._errors:
            return self.connection.execute(sql, params).rowcount

    def change_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> int:
        """Run one changing statement for each row and return the number of rows changed in all."""
        with self._errors:
            return max(self.connection.executemany(sql, rows).rowcount, 0)

    def keep_pages(self, kib: int) -> None:
        """Keep so many KiB of the file in memory at most."""
        with self._errors:
            self.connection.execute(f"PRAGMA cache_size = -{int(kib)}")

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[None]:
        """Begin an immediate transaction, or join the one that is open (all of the inner one or nothing of it).

        Args:
            durable: the commit is on disk before this returns; for intents and ids. Rows that can be derived
                again (from the input, the provider, the result files) do without.

        Raises:
            RuntimeError: a durable transaction inside one that is not.
        """
        if self._depth:
            if durable and not self._durable:
                raise RuntimeError("a durable transaction cannot join one that is not")
            with self._joined():
                yield
            return
        self._begin(durable=durable)
        try:
            yield
            self._run("COMMIT")
        finally:
            self._end()

    @contextmanager
    def _joined(self) -> Iterator[None]:
        """A savepoint, so that a caller who catches an error does not commit half of what raised it."""
        name = f"depth_{self._depth}"
        self._run(f"SAVEPOINT {name}")
        self._depth += 1
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:
                self._run(f"ROLLBACK TO {name}")
            raise
        finally:
            self._depth -= 1
        self._run(f"RELEASE {name}")

    def _begin(self, *, durable: bool) -> None:
        if self._wal and durable:
            self._run("PRAGMA synchronous = FULL")
        try:
            self._run("BEGIN IMMEDIATE")
        except BaseException:
            self._relax()
            raise
        self._depth = 1
        self._durable = durable

    def _end(self) -> None:
        self._depth = 0
        if self.connection.in_transaction:
            self._run("ROLLBACK")
        self._relax()

    def _relax(self) -> None:
        if self._wal:
            self._run("PRAGMA synchronous = NORMAL")

    def _run(self, sql: str) -> None:
        with self._errors:
            self.connection.execute(sql)


def open_journal(connect: Callable[[], sqlite3.Connection]) -> tuple[sqlite3.Connection, bool]:
    """Connect with WAL; where the file system refuses it, with a truncated journal and full sync.

    Field reports 179, 180.

    Returns:
        The connection, and whether WAL is on.
    """
    connection = connect()
    try:
        if _wal_works(connection):
            connection.execute("PRAGMA synchronous = NORMAL")
            return connection, True
    except BaseException:
        connection.close()
        raise
    connection.close()
    # What failed may have marked the file as WAL. Only a new connection that is exclusive from its start, and so needs
    # no shared memory, can switch it back.
    connection = connect()
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("PRAGMA locking_mode = NORMAL")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # the lock goes with the next read
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection, False


def _wal_works(connection: sqlite3.Connection) -> bool:
    """Turn WAL on and read once, because some file systems fail only when it is first used."""
    try:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_IOERR:
            raise
        return False
    return bool(mode == ("wal",))


def open_writable(path: Path) -> Database:
    """Open a state file to write, creating it (0600) or migrating it where needed."""
    _create(path)
    with Translating(path):
        with closing(_connect(path, "rw")) as first:
            _settle(path, first)  # nothing is written into a file that is not ours
        connection, wal = open_journal(partial(_connect, path, "rw"))
    try:
        with Translating(path):
            connection.execute("PRAGMA foreign_keys = ON")
            database = Database(path, connection, wal=wal)
            database.keep_pages(CACHE_KIB)
            with database.transaction(durable=True):
                if not _settle(path, connection):
                    from batchctl.state.migrations import migrate

                    migrate(connection)
    except BaseException:
        connection.close()
        raise
    return database


def open_readonly(path: Path) -> Database:
    """Open an existing state file to read; nothing is created, migrated or imported."""
    missing = InputError(
        f"no state file at {path}",
        hint="`batchctl submit` or `batchctl run` starts one; --state FILE names another",
    )
    if not path.exists():
        raise missing
    with Translating(path):
        connection = connect_to_read(path)
    try:
        with Translating(path):
            current = _settle(path, connection)
            empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    except BaseException:
        connection.close()
        raise
    if current:
        return Database(path, connection, wal=False)
    connection.close()
    if empty:
        raise missing
    raise StateError(f"{path}: written by an older version of batchctl", hint="`batchctl poll` brings it up to date")


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Connect without changing anything but what a process that died left halfway, which SQLite takes back first.

    Without WAL that is a rollback journal, and a connection that may only read cannot play it back.
    """
    connection = _connect(path, "ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
            return connection  # whoever reads meets the error
        connection.close()
        connection = _connect(path, "rw")
        connection.execute("PRAGMA query_only = ON")
    return connection


def _create(path: Path) -> None:
    """Create an empty 0600 file and make its name durable, so that a paid id is never in a file nobody finds."""
    try:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except FileExistsError:
        if path.parent.is_dir():
            return
        raise StateError(f"{path.parent}: not a folder", hint="--state FILE names another place") from None
    except OSError as error:
        raise StateError(
            f"{path}: the state file cannot be created: {error.strerror}", hint="--state FILE names another place"
        ) from error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    with Translating(path):
        return sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode={mode}", uri=True, isolation_level=None, timeout=BUSY_MS / 1000
        )


def _settle(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether the file has this version's schema.

    Raises:
        StateError: it is another program's database, or newer than this version.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return False
    if connection.execute("PRAGMA application_id").fetchone() != (APPLICATION_ID,):
        raise StateError(f"{path}: a SQLite database, but not one of batchctl", hint="--state FILE names another place")
    applied = {
        name
        for (name,) in connection.execute(
            "SELECT name FROM _sqlite_migrations WHERE migration_set = ?", (MIGRATION_SET,)
        )
    }
    newer = sorted(applied - set(MIGRATION_NAMES))
    if newer:
        raise StateError(
            f"{path}: written by a newer version of batchctl (it has {newer[-1]})",
            hint="install the newer version; this one changes nothing in the file",
        )
    return applied == set(MIGRATION_NAMES)
