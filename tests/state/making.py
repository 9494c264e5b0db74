"""Runs, batches and results of test stores, in as few words as a test can use."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from batchctl.core.model import BatchState, ItemState, Lane, Outcome
from batchctl.state.rows import Failure, NewItem, Success, Totals
from batchctl.state.store import Store

NOW = datetime(2026, 1, 31, 22, 15, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
LENGTH = 99
TOKENS = 10


def new_item(seq: int, batch: int | None = 1, id_: str | None = None) -> NewItem:
    """An open item with its request in the spool."""
    place = (seq - 1) * (LENGTH + 1)
    return (seq, id_ or f"item-{seq}", seq, 0, place, LENGTH, TOKENS, batch, ItemState.OPEN, None, None, None)


def bad_item(seq: int) -> NewItem:
    """A record that cannot be sent; its error line takes the first bytes of errors.jsonl."""
    return (seq, None, seq, 0, None, None, 0, None, ItemState.FAILED, Outcome.ERRORED, 0, 50)


def create_run(store: Store, name: str = "night", token: str | None = None) -> int:
    """A run in planning."""
    return store.runs.create(
        name, token or f"token-{name}", "openai", "/v1/chat/completions", "small", {"a": 1}, "f1", "runs/n", NOW
    )


def add_waiting(store: Store, run_id: int, number: int, seqs: Sequence[int], round_: int = 0) -> None:
    """A waiting batch for these items, its sums made from them."""
    store.batches.add_waiting(
        run_id, number, round_, len(seqs), len(seqs) * (LENGTH + 1), len(seqs) * TOKENS, seqs[0], seqs[-1]
    )


def plan(store: Store, items: int = 6, per_batch: int = 3, name: str = "night") -> int:
    """An open run of `items` items, packed into waiting batches of `per_batch`."""
    run_id = create_run(store, name)
    seqs = list(range(1, items + 1))
    store.items.add(run_id, [new_item(seq, (seq - 1) // per_batch + 1) for seq in seqs])
    for start in range(0, items, per_batch):
        add_waiting(store, run_id, start // per_batch + 1, seqs[start : start + per_batch])
    store.runs.finish_plan(run_id, planned=items, inputs=["items.jsonl"], errors_bytes=0, at=NOW)
    return run_id


def create(store: Store, run_id: int, number: int, batch_id: str | None = None, *, certain: bool = True) -> None:
    """Give a batch that is being sent its provider id."""
    store.batches.created(
        run_id,
        number,
        batch_id=batch_id or f"batch-{run_id}-{number}",
        status="validating",
        expires_at=NOW + timedelta(hours=24),
        certain=certain,
        at=NOW,
        next_check_at=LATER,
    )


def send(store: Store, run_id: int, number: int) -> None:
    """Bring a waiting batch in progress."""
    store.batches.intend(run_id, number, f"key-{run_id}-{number}-{store.batches.next_number(run_id)}", NOW)
    create(store, run_id, number)


def succeed(store: Store, run_id: int, number: int | None, *seqs: int) -> None:
    """Answer items, appending to results.jsonl."""
    end = store.results.ends(run_id)[0]
    successes = [Success(seq, end + place * 50, 50) for place, seq in enumerate(seqs)]
    lane = Lane.SYNC if number is None else Lane.BATCH
    store.results.record(
        run_id, number, lane, successes, [], at=NOW, results_end=end + 50 * len(seqs), totals=Totals(output_tokens=1)
    )


def fail(
    store: Store,
    run_id: int,
    number: int | None,
    *seqs: int,
    outcome: Outcome = Outcome.ERRORED,
    final: bool = False,
    spends_round: bool = True,
) -> None:
    """Let attempts fail; final ones append to errors.jsonl."""
    end = store.results.ends(run_id)[1]
    failures = [
        Failure(
            seq, outcome, "overloaded", "529", "busy", final, end + place * 50 if final else None, 50 if final else None
        )
        if spends_round
        else Failure(seq, outcome, "overloaded", "529", "busy", spends_round=False)
        for place, seq in enumerate(seqs)
    ]
    lane = Lane.SYNC if number is None else Lane.BATCH
    store.results.record(run_id, number, lane, [], failures, at=NOW, errors_end=end + 50 * len(seqs) if final else None)


def force(path: Path, run_id: int, state: str, number: int | None = None) -> None:
    """Put a run or a batch into a state from outside, as no store would."""
    with sqlite3.connect(path) as connection:
        if number is None:
            connection.execute("UPDATE runs SET state = ? WHERE id = ?", (state, run_id))
        else:
            connection.execute("UPDATE batches SET state = ? WHERE run_id = ? AND number = ?", (state, run_id, number))
    connection.close()


def state_of(store: Store, run_id: int, number: int) -> BatchState:
    """A batch's state."""
    batch = store.batches.get(run_id, number)
    assert batch is not None
    return batch.state
