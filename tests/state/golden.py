"""Writes the golden files of the persisted contract: `python -m tests.state.golden schema` or `… fixture VERSION`."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from batchctl.core.model import Outcome, RunState
from batchctl.state.store import Store
from tests.state.making import NOW, add_waiting, bad_item, create_run, fail, new_item, plan, send, succeed

CONTRACT = Path(__file__).resolve().parents[2] / "state"


def schema_text(path: Path) -> str:
    """The schema of a state file as `schema.sql` has it."""
    connection = sqlite3.connect(path)
    statements = connection.execute(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND tbl_name NOT GLOB '_sqlite_*' ORDER BY rowid"
    ).fetchall()
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    connection.close()
    lines = [f"{sql};\n" for (sql,) in statements]
    return "\n".join(
        ["-- Made by `python -m tests.state.golden schema`.\n", *lines, f"PRAGMA application_id = {application_id};\n"]
    )


def fill(store: Store) -> None:
    """Two runs that between them hold a row of every kind."""
    night = plan(store, items=6, per_batch=3)
    send(store, night, 1)
    succeed(store, night, 1, 1)
    fail(store, night, 1, 2)
    fail(store, night, 1, 3, outcome=Outcome.INVALID, final=True)
    store.batches.ended(night, 1, NOW)
    store.batches.collected(night, 1, NOW)
    add_waiting(store, night, 3, [2], round_=1)
    store.batches.assign(night, 3, [2], 1)
    store.batches.intend(night, 2, "key-intended", NOW)
    store.events.add(night, 1, NOW, 20, "batch.submitted", "batch 1: 3 requests", {"requests": 3})
    small = create_run(store, "small")
    store.items.add(small, [new_item(1, None), bad_item(2)])
    store.runs.finish_plan(small, planned=2, inputs=["small.jsonl"], errors_bytes=50, at=NOW)
    succeed(store, small, None, 1)
    store.runs.move(small, RunState.DONE, needs=None, at=NOW)


def main(arguments: list[str]) -> None:
    """Write one golden file."""
    match arguments:
        case ["schema"]:
            scratch = CONTRACT / "scratch.db"
            Store.open(scratch).close()
            (CONTRACT / "schema.sql").write_text(schema_text(scratch), encoding="utf-8")
            scratch.unlink()
        case ["fixture", version]:
            target = CONTRACT / "fixtures" / f"{version}.db"
            target.unlink(missing_ok=True)
            with Store.open(target) as store:
                fill(store)
        case _:
            sys.exit("usage: python -m tests.state.golden schema | fixture VERSION")


if __name__ == "__main__":
    main(sys.argv[1:])
