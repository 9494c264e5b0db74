"""The persisted contract: what the migrations make is what `state/` says."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest
from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from batchctl.core.model import BATCH_MOVES, RUN_MOVES
from batchctl.state.migrations import migrations
from batchctl.state.salvage import damage_of
from batchctl.state.schema import MIGRATION_NAMES
from batchctl.state.store import Store
from tests.state.golden import CONTRACT, schema_text

README = (CONTRACT / "README.md").read_text(encoding="utf-8")
FIXTURES = sorted((CONTRACT / "fixtures").glob("*.db"))


def tables(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Columns and types of every table."""
    connection = sqlite3.connect(path)
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB '_sqlite_*'")
    found = {
        name: [(column[1], column[2]) for column in connection.execute(f"PRAGMA table_info({name})")]
        for (name,) in names.fetchall()
    }
    connection.close()
    return found


def test_schema_is_golden(store: Store, path: Path) -> None:
    """The migrations make exactly `state/schema.sql`."""
    assert schema_text(path) == (CONTRACT / "schema.sql").read_text(encoding="utf-8")


def test_every_column_is_described(store: Store, path: Path) -> None:
    """The tables of `state/README.md` have the columns and types of the schema, in its order."""
    described = {
        part.split("\n", 1)[0]: re.findall(r"^\| (\w+) \| ([A-Z]+) \| .+ \|$", part, re.MULTILINE)
        for part in README.split("\n### ")[1:]
    }
    assert described == tables(path)


@pytest.mark.parametrize(("diagram", "moves"), [(0, RUN_MOVES), (1, BATCH_MOVES)], ids=["runs", "batches"])
def test_diagrams_are_the_model(diagram: int, moves: Mapping[str, frozenset[str]]) -> None:
    """The state diagrams draw the allowed moves, all of them and no other."""
    text = re.findall(r"```mermaid\n(.*?)```", README, re.DOTALL)[diagram]
    drawn = set(re.findall(r"(\w+) --> (\w+)", text))
    assert drawn == {(source, target) for source, targets in moves.items() for target in targets}


def test_names_are_the_migrations() -> None:
    """The names that make a file newer or older are those of the migrations, in order."""
    assert tuple(migration.name for migration in migrations.pending(Database(memory=True))) == MIGRATION_NAMES


def test_opening_again_changes_nothing(store: Store, path: Path) -> None:
    """A file that is up to date is not migrated again."""
    store.close()
    before = path.read_bytes()
    Store.open(path).close()
    assert path.read_bytes() == before


def test_a_migration_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """A failing step is rolled back whole and stays pending."""
    broken = Migrations("batchctl")

    @broken(name="m001_first_release")
    def step(db: Database) -> None:
        db.execute("CREATE TABLE runs (id INTEGER)")
        db.execute("CREATE TABLE runs (id INTEGER)")

    database = Database(tmp_path / "broken.db")
    with pytest.raises(sqlite3.OperationalError):
        broken.apply(database)
    assert "runs" not in database.table_names()
    assert [migration.name for migration in broken.pending(database)] == ["m001_first_release"]
    database.close()


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
def test_every_release_can_be_opened(fixture: Path, tmp_path: Path) -> None:
    """A state file of each release opens, has today's schema, and its books add up."""
    path = tmp_path / fixture.name
    shutil.copyfile(fixture, path)
    with Store.open(path) as store:
        assert schema_text(path) == (CONTRACT / "schema.sql").read_text(encoding="utf-8")
        runs = {run.name: run for run in store.runs.all()}
        assert [(run.planned, run.succeeded, run.failed, run.open) for run in runs.values()] == [
            (6, 1, 1, 4),
            (2, 1, 1, 0),
        ]
        night = runs["night"].id
        assert [store.runs.verify(run.id) for run in runs.values()] == [[], []]
        assert [batch.state for batch in store.batches.all(night)] == ["collected", "submitting", "waiting"]
        assert [attempt.outcome for attempt in store.items.attempts(night, 3)] == ["invalid"]
        assert [event.kind for event in store.events.list(night)] == ["batch.submitted"]
    assert damage_of(path) == []


def test_there_is_a_fixture() -> None:
    """The first release is among the fixtures."""
    assert "0.1.0" in {fixture.stem for fixture in FIXTURES}
