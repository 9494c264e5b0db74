"""The migrations, run by sqlite-utils. Imported only when a file is new or older than this version (it costs 0.2 s)."""

from __future__ import annotations

import sqlite3

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from batchctl.state.schema import FIRST_RELEASE, MIGRATION_SET

migrations = Migrations(MIGRATION_SET)


@migrations(name="m001_first_release")
def m001_first_release(db: Database) -> None:
    """Everything release 0.1.0 keeps."""
    for statement in FIRST_RELEASE:
        db.execute(statement)


def migrate(connection: sqlite3.Connection) -> None:
    """Apply what is pending. The caller holds the write lock, so two processes cannot migrate at once."""
    migrations.apply(Database(connection))
