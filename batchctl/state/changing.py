"""What the tables share when they change: the check of row counts, membership ranges, sizes of waiting batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from batchctl.core.errors import StaleStateError
from batchctl.core.model import BatchState, Lane, Outcome, batch_sources
from batchctl.state.connection import Database

CHUNK = 256
MARKS = ", ".join("?" * CHUNK)
"""Placeholders of one chunk: a fixed number, so that SQLite prepares each statement once."""


def chunks(values: Iterable[Any]) -> Iterator[Sequence[Any]]:
    """Values in tuples of exactly `CHUNK`, the last filled up with its own last value."""
    sequence = values if isinstance(values, (list, tuple)) else list(values)
    for start in range(0, len(sequence), CHUNK):
        part = tuple(sequence[start : start + CHUNK])
        yield part + part[-1:] * (CHUNK - len(part))


def expect(changed: int, wanted: int, what: str) -> None:
    """Raise `StaleStateError` where an update met another number of rows than it must."""
    if changed != wanted:
        raise StaleStateError(
            f"{what}: {changed} rows changed, {wanted} wanted",
            hint="another process changed the state; give the same command again, or see `batchctl doctor`",
        )


def quoted(states: Iterable[str]) -> str:
    """States of our own enums as the inside of a SQL list."""
    return ", ".join(f"'{state}'" for state in sorted(states))


def resize(db: Database, run_id: int, number: int) -> None:
    """Count again what a waiting batch holds after an item left it; one that holds nothing is withdrawn.

    An input file uploaded before that holds the item still, so it is not used again.
    """
    row = db.row("SELECT state, first_seq, last_seq FROM batches WHERE run_id = ? AND number = ?", (run_id, number))
    if row is None or row[0] != BatchState.WAITING:
        return
    held = holdings(db, run_id, number, row[1], row[2])
    db.change(
        "UPDATE batches SET file_id = CASE WHEN requests = ?1 THEN file_id END, requests = ?1, size = ?2, tokens = ?3"
        " WHERE run_id = ?4 AND number = ?5",
        (*held, run_id, number),
    )
    if held[0] == 0:
        change_batch(db, run_id, number, BatchState.WITHDRAWN, {})


def holdings(db: Database, run_id: int, number: int, first: int, last: int) -> tuple[int, int, int]:
    """Requests, bytes (each line with its newline) and tokens of the open items a batch holds in a range of seq."""
    row = db.row(
        "SELECT count(*), coalesce(sum(length + 1), 0), coalesce(sum(tokens), 0) FROM items"
        " WHERE run_id = ? AND seq BETWEEN ? AND ? AND batch = ? AND state = 'open'",
        (run_id, first, last, number),
    )
    assert row is not None  # an aggregate always answers
    return row[0], row[1], row[2]


def release(db: Database, run_id: int, number: int) -> int:
    """Put the open items of a batch back to pending; their round stays."""
    return db.change(
        "UPDATE items SET batch = NULL WHERE run_id = ?1 AND batch = ?2 AND state = 'open' AND seq BETWEEN"
        " (SELECT first_seq FROM batches WHERE run_id = ?1 AND number = ?2)"
        " AND (SELECT last_seq FROM batches WHERE run_id = ?1 AND number = ?2)",
        (run_id, number),
    )


def leave(db: Database, run_id: int, number: int, now: str) -> None:
    """Let the open items of a batch go as expired, each keeping a row that says it was there."""
    held = "run_id = ?1 AND batch = ?2 AND state = 'open'"
    left = db.change(
        "INSERT INTO attempts (run_id, seq, number, lane, batch, round, outcome, error_type, error_message, at)"  # noqa: S608
        " SELECT run_id, seq, attempts + 1, 'batch', batch, round, 'expired', 'expired', 'given up by hand', ?3"
        f" FROM items WHERE {held}",
        (run_id, number, now),
    )
    db.change(
        "UPDATE items SET batch = NULL, outcome = 'expired', attempts = attempts + 1, round = round + 1"  # noqa: S608
        f" WHERE {held}",
        (run_id, number),
    )
    count_outcomes(db, run_id, number, Lane.BATCH, Counter({Outcome.EXPIRED: left}))


def count_outcomes(db: Database, run_id: int, number: int | None, lane: Lane, outcomes: Counter[Outcome]) -> None:
    """Add attempts by outcome to the counters of their lane and, where there is one, of their batch."""
    db.change_many(
        "INSERT INTO outcomes (run_id, lane, outcome, count) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET count = count + excluded.count",
        [(run_id, lane, outcome, count) for outcome, count in outcomes.items() if count],
    )
    if number is None:
        return
    added = ", ".join(f"{outcome} = {outcome} + ?" for outcome in Outcome)
    changed = db.change(
        f"UPDATE batches SET {added} WHERE run_id = ? AND number = ?",  # noqa: S608  # our own columns
        (*(outcomes[outcome] for outcome in Outcome), run_id, number),
    )
    expect(changed, 1, f"batch {number} of run {run_id}")


def change_batch(
    db: Database,
    run_id: int,
    number: int,
    target: BatchState,
    columns: dict[str, Any],
) -> None:
    """Move a batch, with other columns, in one conditional update.

    Raises:
        StaleStateError: the batch is in a state that cannot become this one.
    """
    assignments = "".join(f", {name} = ?" for name in columns)
    changed = db.change(
        f"UPDATE batches SET state = ?{assignments}"  # noqa: S608  # names of our own columns and states
        f" WHERE run_id = ? AND number = ? AND state IN ({quoted(batch_sources(target))})",
        (target, *columns.values(), run_id, number),
    )
    if changed != 1:
        row = db.row("SELECT state FROM batches WHERE run_id = ? AND number = ?", (run_id, number))
        found = "missing" if row is None else row[0]
        expect(changed, 1, f"batch {number} of run {run_id} is {found} and cannot become {target}")
