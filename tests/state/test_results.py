"""Recording outcomes: once, all of a chunk or nothing, with every counter."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from batchctl.core.errors import StaleStateError
from batchctl.core.model import BatchState, ItemState, Lane, Outcome
from batchctl.state.rows import Failure, Success, Totals
from batchctl.state.store import Store
from tests.state.making import LATER, NOW, add_waiting, create, fail, plan, send, succeed


def counts(store: Store, run_id: int) -> tuple[int, int, int]:
    """Succeeded, failed and open items of a run."""
    run = store.runs.by_id(run_id)
    assert run is not None
    return run.succeeded, run.failed, run.open


def item(store: Store, run_id: int, seq: int) -> tuple[ItemState, int | None, int, int]:
    """State, batch, round and attempts of an item."""
    row = store.items.by_seqs(run_id, [seq])[seq]
    return row.state, row.batch, row.round, row.attempts


def test_a_chunk_of_outcomes(store: Store) -> None:
    """One call moves the items and every counter they touch."""
    run_id = plan(store, items=4, per_batch=4)
    send(store, run_id, 1)
    store.results.record(
        run_id,
        1,
        Lane.BATCH,
        [Success(3, 0, 70), Success(1, 70, 30)],
        [
            Failure(2, Outcome.ERRORED, "overloaded", None, "busy"),
            Failure(4, Outcome.INVALID, None, "schema", "no", final=True, out_offset=0, out_length=40),
        ],
        at=LATER,
        results_end=100,
        errors_end=40,
        totals=Totals(input_tokens=11, output_tokens=7, cached_input_tokens=5, cost_usd=0.25, unpriced=1),
    )
    run = store.runs.by_id(run_id)
    assert run is not None
    assert (run.succeeded, run.failed, run.open) == (2, 1, 1)
    assert (run.input_tokens, run.output_tokens, run.cached_input_tokens) == (11, 7, 5)
    assert (run.cost_usd, run.unpriced, run.updated_at) == (0.25, 1, LATER)
    assert store.results.ends(run_id) == (100, 40)
    batch = store.batches.get(run_id, 1)
    assert batch is not None
    assert (batch.succeeded, batch.errored, batch.invalid, batch.requests) == (2, 1, 1, 4)
    assert store.runs.outcomes(run_id) == {"succeeded": 2, "errored": 1, "invalid": 1}
    assert store.runs.batch_states(run_id) == {BatchState.IN_PROGRESS: 1}
    assert [item(store, run_id, seq) for seq in (1, 2, 3, 4)] == [
        (ItemState.SUCCEEDED, 1, 0, 1),
        (ItemState.OPEN, None, 1, 1),
        (ItemState.SUCCEEDED, 1, 0, 1),
        (ItemState.FAILED, 1, 0, 1),
    ]
    assert [(row.out_offset, row.out_length) for row in store.items.page(run_id)] == [
        (70, 30),
        (None, None),
        (0, 70),
        (0, 40),
    ]
    assert store.runs.verify(run_id) == []


def test_the_sync_lane(store: Store) -> None:
    """Pending items are answered without a batch, and counted in their own lane."""
    run_id = plan(store, items=3, per_batch=3)
    store.batches.withdraw(run_id, 1)
    succeed(store, run_id, None, 1)
    fail(store, run_id, None, 2, final=True)
    fail(store, run_id, None, 3, spends_round=False)
    assert [item(store, run_id, seq) for seq in (1, 2, 3)] == [
        (ItemState.SUCCEEDED, None, 0, 1),
        (ItemState.FAILED, None, 0, 1),
        (ItemState.OPEN, None, 0, 1),
    ]
    assert store._db.rows("SELECT lane, outcome, count FROM outcomes") == [
        ("sync", "errored", 2),
        ("sync", "succeeded", 1),
    ]
    assert store.runs.verify(run_id) == []


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("number", [1, 2, None])
def test_an_item_is_settled_once(store: Store, number: int | None, *, final: bool) -> None:
    """A second outcome for a succeeded item raises whatever it is, and nothing of its chunk is kept."""
    run_id = plan(store, items=4, per_batch=2)
    send(store, run_id, 1)
    send(store, run_id, 2)
    succeed(store, run_id, 1, 1)
    before = store.items.page(run_id), store.runs.all(), store.batches.all(run_id), store.runs.outcomes(run_id)
    with pytest.raises(StaleStateError):
        succeed(store, run_id, number, 2 if number == 1 else 3, 1)
    with pytest.raises(StaleStateError):
        fail(store, run_id, number, 1, final=final)
    after = store.items.page(run_id), store.runs.all(), store.batches.all(run_id), store.runs.outcomes(run_id)
    assert after == before


def test_one_item_twice_in_a_chunk(store: Store) -> None:
    """A chunk that answers an item twice is a mistake of the caller and kept out whole."""
    run_id = plan(store)
    send(store, run_id, 1)
    for outcomes in (([1, 1], []), ([], [2, 2]), ([3], [3])):
        with pytest.raises(StaleStateError):
            store.results.record(
                run_id,
                1,
                Lane.BATCH,
                [Success(seq, 0, 1) for seq in outcomes[0]],
                [Failure(seq, Outcome.ERRORED) for seq in outcomes[1]],
                at=NOW,
                results_end=1,
            )
    assert counts(store, run_id) == (0, 0, 6)


def test_a_failure_of_another_batch(store: Store) -> None:
    """A late failure does not take an item out of the batch it waits for now."""
    run_id = plan(store, items=4, per_batch=2)
    send(store, run_id, 1)
    send(store, run_id, 2)
    with pytest.raises(StaleStateError):
        fail(store, run_id, 1, 3)
    assert item(store, run_id, 3) == (ItemState.OPEN, 2, 0, 0)


def test_a_late_answer_of_a_pending_item(store: Store) -> None:
    """An answer to an expired attempt is kept while the item has none, and the item is not sent again."""
    run_id = plan(store, items=1, per_batch=1)
    send(store, run_id, 1)
    fail(store, run_id, 1, 1, outcome=Outcome.EXPIRED)
    succeed(store, run_id, 1, 1)
    assert item(store, run_id, 1) == (ItemState.SUCCEEDED, 1, 1, 1)
    assert store.items.count_pending(run_id) == 0
    assert counts(store, run_id) == (1, 0, 0)
    assert store.runs.verify(run_id) == []


def late(store: Store, second: str) -> int:
    """Item 1 of two expired in batch 1, sits with the other in batch 2 (waiting or sent), then batch 1 answers it."""
    run_id = plan(store, items=2, per_batch=2)
    send(store, run_id, 1)
    fail(store, run_id, 1, 1, 2, outcome=Outcome.EXPIRED)
    add_waiting(store, run_id, 2, [1, 2], round_=1)
    store.batches.assign(run_id, 2, [1, 2], 1)
    if second != "waiting":
        store.batches.intend(run_id, 2, "key-2", NOW)
    if second == "in_progress":
        create(store, run_id, 2)
    succeed(store, run_id, 1, 1)
    assert store.runs.verify(run_id) == []
    return run_id


def test_a_late_answer_shrinks_a_waiting_batch(store: Store) -> None:
    """A batch that was not sent yet goes without the item."""
    run_id = late(store, "waiting")
    batch = store.batches.get(run_id, 2)
    assert batch is not None
    assert (batch.requests, batch.size, batch.tokens) == (1, 100, 10)
    assert store.items.has_member(run_id, 2, [1, 2]) == {2}
    succeed(store, run_id, 1, 2)
    assert [row.state for row in store.batches.all(run_id)] == ["in_progress", "withdrawn"]
    assert store.runs.verify(run_id) == []


@pytest.mark.parametrize("second", ["submitting", "in_progress"])
def test_a_late_answer_while_sent_again(store: Store, second: str) -> None:
    """A batch that was sent keeps knowing the item, so that its own answer is a repetition and no stranger."""
    run_id = late(store, second)
    assert item(store, run_id, 1) == (ItemState.SUCCEEDED, 1, 1, 2)
    assert store.items.has_member(run_id, 2, [1, 2]) == {1, 2}
    batch = store.batches.get(run_id, 2)
    assert batch is not None
    assert batch.requests == 2
    with pytest.raises(StaleStateError):
        succeed(store, run_id, 2, 1)
    assert [(attempt.number, attempt.outcome) for attempt in store.items.attempts(run_id, 1)] == [
        (1, Outcome.EXPIRED),
        (2, None),
    ]


def test_a_sync_answer_is_never_late(store: Store) -> None:
    """The sync lane answers pending items only; one that waits for a batch is not its to settle."""
    run_id = plan(store)
    with pytest.raises(StaleStateError):
        succeed(store, run_id, None, 1)


def test_files_do_not_get_shorter(store: Store) -> None:
    """A recorded end before the last one is refused; a repair sets it on purpose."""
    run_id = plan(store)
    send(store, run_id, 1)
    succeed(store, run_id, 1, 1, 2)
    with pytest.raises(StaleStateError, match="recorded end"):
        store.results.record(run_id, 1, Lane.BATCH, [Success(3, 0, 50)], [], at=NOW, results_end=50)
    store.results.set_ends(run_id, 100, 7)
    assert store.results.ends(run_id) == (100, 7)
    for call in (lambda: store.results.ends(9), lambda: store.results.set_ends(9, 0, 0)):
        with pytest.raises(StaleStateError, match="run 9"):
            call()


def test_an_unknown_batch_or_run(store: Store) -> None:
    """Outcomes of a batch or run that is not there are refused."""
    run_id = plan(store)
    with pytest.raises(StaleStateError, match="batch 9"):
        store.results.record(run_id, 9, Lane.BATCH, [], [], at=NOW)
    with pytest.raises(StaleStateError, match="run 9"):
        store.results.record(9, None, Lane.SYNC, [], [], at=NOW)


def test_sending_failed_items_once_more(store: Store) -> None:
    """A person reopens failed items; succeeded ones, open ones and bad records cannot be."""
    run_id = plan(store, items=3, per_batch=3)
    send(store, run_id, 1)
    succeed(store, run_id, 1, 1)
    fail(store, run_id, 1, 2, final=True)
    for seqs in ([2, 1], [2, 3], [2, 9]):
        with pytest.raises(StaleStateError, match="failed items"):
            store.results.reopen(run_id, seqs, NOW)
    assert counts(store, run_id) == (1, 1, 1)
    store.results.reopen(run_id, [2], LATER)
    assert counts(store, run_id) == (1, 0, 2)
    assert [(member.seq, member.attempts) for member in store.items.pending(run_id)] == [(2, 1)]
    fail(store, run_id, None, 2, final=True)
    assert [attempt.number for attempt in store.items.attempts(run_id, 2)] == [1, 2]
    assert store.runs.verify(run_id) == []


def test_a_rewritten_error_file(store: Store) -> None:
    """New places of settled items' lines are taken; an open item has none."""
    run_id = plan(store)
    send(store, run_id, 1)
    fail(store, run_id, 1, 1, 2, final=True)
    store.results.remap(run_id, {1: (50, 49), 2: (0, 50)})
    assert [(row.out_offset, row.out_length) for row in store.items.page(run_id, limit=2)] == [(50, 49), (0, 50)]
    with pytest.raises(StaleStateError, match="settled"):
        store.results.remap(run_id, {1: (0, 50), 3: (50, 50)})


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("UPDATE runs SET succeeded = 2", "succeeded is 2, but the items say 1"),
        ("UPDATE runs SET planned = 7", "planned is 7, but the items say 6"),
        ("UPDATE runs SET failed = 0", "failed is 0, but the items say 1"),
        ("UPDATE runs SET results_bytes = 49", "results.jsonl ends at byte 49, but an item's line ends at byte 50"),
        ("UPDATE runs SET errors_bytes = 0", "errors.jsonl ends at byte 0"),
        ("UPDATE batches SET succeeded = 3 WHERE number = 1", "batch 1: succeeded is 3, but the items say 1"),
        ("UPDATE batches SET requests = 4 WHERE number = 2", "batch 2 has 4 requests, but holds 3 items"),
        ("UPDATE batches SET last_seq = 5 WHERE number = 2", "batch 2 holds items 4 to 6, outside its 4 to 5"),
        ("UPDATE batches SET state = 'collected' WHERE number = 2", "batch 2 is collected, but 3 items still wait"),
        ("UPDATE items SET batch = 9 WHERE seq = 4", "1 items are in batch 9, which does not exist"),
        ("UPDATE outcomes SET count = 5 WHERE outcome = 'errored'", "batch attempts errored: 5 recorded, 1 counted"),
        ("DELETE FROM attempts", "batch attempts errored: 1 recorded, 0 counted"),
        ("DELETE FROM items WHERE seq = 6", "planned is 6, but the items say 5"),
    ],
)
def test_books_that_do_not_add_up(store: Store, path: Path, damage: str, problem: str) -> None:
    """Each difference between counters and items is named."""
    run_id = plan(store)
    send(store, run_id, 1)
    succeed(store, run_id, 1, 1)
    fail(store, run_id, 1, 2, final=True)
    assert store.runs.verify(run_id) == []
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(damage)
    connection.close()
    assert any(problem in line for line in store.runs.verify(run_id))


def test_books_of_no_run(store: Store) -> None:
    """A run that is not there is said to be so."""
    assert store.runs.verify(9) == ["there is no run 9"]
