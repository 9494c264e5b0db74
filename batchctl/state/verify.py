"""The books, counted again from the items: what `batchctl doctor` prints and what closing a run asks for."""

from __future__ import annotations

from collections import Counter
from typing import Any

from batchctl.core.model import MAY_ANSWER, BatchState, Outcome
from batchctl.state.connection import Database


def adds_up(db: Database, run_id: int) -> bool:
    """Whether a run that was just planned has the items it counts, each batch its own; in half the time of `verify`."""
    counted = db.row(
        "SELECT count(*), count(batch), coalesce(max(out_offset + out_length), 0) FROM items WHERE run_id = ?",
        (run_id,),
    )
    recorded = db.row(
        "SELECT planned, (SELECT coalesce(sum(requests), 0) FROM batches WHERE run_id = runs.id), errors_bytes"
        " FROM runs WHERE id = ?",
        (run_id,),
    )
    if counted is None or recorded is None or counted[:2] != recorded[:2] or counted[2] > recorded[2]:
        return False
    # The items of each batch lie between its first and its last, so this goes over them about once.
    wrong = db.row(
        "SELECT 1 FROM batches AS b WHERE run_id = ? AND requests <>"
        " (SELECT count(*) FROM items WHERE run_id = b.run_id AND seq BETWEEN b.first_seq AND b.last_seq"
        "  AND batch = b.number AND state = 'open') LIMIT 1",
        (run_id,),
    )
    return wrong is None


def verify(db: Database, run_id: int) -> list[str]:
    """Each difference between the counters of a run and its rows, as a sentence."""
    states: Counter[str] = Counter()
    succeeded: Counter[int | None] = Counter()
    held: dict[int, tuple[int, int, int]] = {}
    ends: dict[str, int] = {}
    for state, batch, count, first, last, end in db.rows(
        "SELECT state, batch, count(*), min(seq), max(seq), max(out_offset + out_length) FROM items"
        " WHERE run_id = ? GROUP BY state, batch",
        (run_id,),
    ):
        states[state] += count
        ends[state] = max(ends.get(state, 0), end or 0)
        if state == "succeeded":
            succeeded[batch] += count
        if state == "open" and batch is not None:
            held[batch] = (count, first, last)
    failures = db.rows(
        "SELECT lane, batch, outcome, count(*) FROM attempts"
        " WHERE run_id = ? AND outcome IS NOT NULL GROUP BY lane, batch, outcome",
        (run_id,),
    )
    return [
        *_run(db, run_id, states, ends),
        *_batches(db, run_id, succeeded, failures, held),
        *_outcomes(db, run_id, succeeded, failures),
    ]


def _run(db: Database, run_id: int, states: Counter[str], ends: dict[str, int]) -> list[str]:
    row = db.row(
        "SELECT planned, succeeded, failed, results_bytes, errors_bytes, state FROM runs WHERE id = ?", (run_id,)
    )
    if row is None:
        return [f"there is no run {run_id}"]
    planned, succeeded, failed, results_bytes, errors_bytes, _ = row
    problems = [
        f"{name} is {recorded}, but the items say {counted}"
        for name, recorded, counted in (
            ("planned", planned, states.total()),
            ("succeeded", succeeded, states["succeeded"]),
            ("failed", failed, states["failed"]),
        )
        if recorded != counted
    ]
    problems += [
        f"{name} ends at byte {recorded}, but an item's line ends at byte {ends[state]}"
        for name, state, recorded in (
            ("results.jsonl", "succeeded", results_bytes),
            ("errors.jsonl", "failed", errors_bytes),
        )
        if ends.get(state, 0) > recorded
    ]
    if row[5] == "done" and states["open"]:
        problems.append(f"it is done, but {states['open']} items are open")
    return problems


def _batches(
    db: Database,
    run_id: int,
    succeeded: Counter[int | None],
    failures: list[tuple[Any, ...]],
    held: dict[int, tuple[int, int, int]],
) -> list[str]:
    counted: Counter[tuple[int, str]] = Counter()
    for batch, count in succeeded.items():
        if batch is not None:
            counted[batch, Outcome.SUCCEEDED] += count
    for _, batch, outcome, count in failures:
        if batch is not None:
            counted[batch, outcome] += count
    problems = []
    known = set()
    columns = ", ".join(Outcome)
    for number, state, requests, first, last, *recorded in db.rows(
        f"SELECT number, state, requests, first_seq, last_seq, {columns} FROM batches WHERE run_id = ?",  # noqa: S608
        (run_id,),
    ):
        known.add(number)
        problems += [
            f"batch {number}: {outcome} is {value}, but the items say {counted[number, outcome]}"
            for outcome, value in zip(Outcome, recorded, strict=True)
            if value != counted[number, outcome]
        ]
        items, low, high = held.get(number, (0, first, last))
        if items and state not in MAY_ANSWER | {BatchState.WAITING}:
            problems.append(f"batch {number} is {state}, but {items} items still wait for it")
        if items > requests or (state == BatchState.WAITING and items != requests):
            problems.append(f"batch {number} has {requests} requests, but holds {items} items")
        if low < first or high > last:
            problems.append(f"batch {number} holds items {low} to {high}, outside its {first} to {last}")
    problems += [
        f"{held[number][0]} items are in batch {number}, which does not exist" for number in held.keys() - known
    ]
    return problems


def _outcomes(db: Database, run_id: int, succeeded: Counter[int | None], failures: list[tuple[Any, ...]]) -> list[str]:
    counted: Counter[tuple[str, str]] = Counter()
    for batch, count in succeeded.items():
        counted["sync" if batch is None else "batch", Outcome.SUCCEEDED] += count
    for lane, _, outcome, count in failures:
        counted[lane, outcome] += count
    recorded = Counter(
        {
            (lane, outcome): count
            for lane, outcome, count in db.rows("SELECT lane, outcome, count FROM outcomes WHERE run_id = ?", (run_id,))
        }
    )
    return [
        f"{lane} attempts {outcome}: {recorded[lane, outcome]} recorded, {counted[lane, outcome]} counted"
        for lane, outcome in sorted(recorded.keys() | counted.keys())
        if recorded[lane, outcome] != counted[lane, outcome]
    ]
