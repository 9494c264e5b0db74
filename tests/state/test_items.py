"""Reading items: by id, by place, by page, by batch."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchctl.core.model import ItemState, Lane, Outcome
from batchctl.state.changing import CHUNK, chunks
from batchctl.state.rows import AttemptRow, ErrorGroup, Failure, Member
from batchctl.state.store import Store
from tests.state.making import (
    LENGTH,
    NOW,
    TOKENS,
    add_waiting,
    bad_item,
    create_run,
    fail,
    new_item,
    plan,
    send,
    succeed,
)


@given(st.integers(0, 3 * CHUNK))
def test_chunks_lose_nothing(count: int) -> None:
    """Chunks are all of one size and hold every value."""
    parts = list(chunks(range(count)))
    assert {len(part) for part in parts} <= {CHUNK}
    assert {value for part in parts for value in part} == set(range(count))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(ids=st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True, min_size=1))
def test_any_text_is_an_id(store: Store, ids: list[str]) -> None:
    """Ids come back byte for byte: no case, form, blank or NUL is folded (field report 25)."""
    run_id = create_run(store, f"run-{len(store.runs.all())}")
    store.items.add(run_id, [new_item(seq, None, id_) for seq, id_ in enumerate(ids, 1)])
    store.runs.finish_plan(run_id, planned=len(ids), inputs=[], at=NOW)
    assert store.items.lookup(run_id, [*ids, "\0not there"]) == {id_: seq for seq, id_ in enumerate(ids, 1)}
    found = store.items.get(run_id, ids[-1])
    assert found is not None
    assert (found.seq, found.id) == (len(ids), ids[-1])


def test_more_than_a_chunk(store: Store) -> None:
    """Looking up more than one chunk finds all, and only what is there."""
    run_id = plan(store, items=600, per_batch=600)
    assert store.items.lookup(run_id, [f"item-{seq}" for seq in range(300, 900)]) == {
        f"item-{seq}": seq for seq in range(300, 601)
    }
    assert sorted(store.items.by_seqs(run_id, range(700))) == list(range(1, 601))
    by_id = store.items.by_ids(run_id, [f"item-{seq}" for seq in range(300, 900)])
    assert {id_: row.seq for id_, row in by_id.items()} == {f"item-{seq}": seq for seq in range(300, 601)}
    assert by_id["item-300"] == store.items.get(run_id, "item-300")
    assert store.items.has_member(run_id, 1, range(700)) == set(range(1, 601))


def test_an_item_as_it_was_added(store: Store) -> None:
    """A row has what the planner gave; a bad record has no request."""
    run_id = create_run(store)
    store.items.add(run_id, [new_item(1, None), bad_item(2)])
    store.runs.finish_plan(run_id, planned=2, inputs=[], errors_bytes=50, at=NOW)
    assert store.items.page(run_id) == [
        (1, "item-1", 1, 0, 0, LENGTH, TOKENS, None, 0, 0, ItemState.OPEN, None, None, None),
        (2, None, 2, 0, None, None, 0, None, 0, 0, ItemState.FAILED, Outcome.ERRORED, 0, 50),
    ]
    assert store.items.get(run_id, "item-9") is None
    assert store.items.pending(run_id) == [Member(1, "item-1", 0, LENGTH, TOKENS, 0, 0)]


def test_pages_in_input_order(store: Store) -> None:
    """Pages follow each other without gap or repetition, filtered by state and outcome."""
    run_id = plan(store, items=7, per_batch=7)
    send(store, run_id, 1)
    succeed(store, run_id, 1, 6, 2)
    fail(store, run_id, 1, 5, final=True)
    fail(store, run_id, 1, 3, outcome=Outcome.EXPIRED)
    seqs: list[int] = []
    while page := store.items.page(run_id, after_seq=seqs[-1] if seqs else 0, limit=3):
        seqs += [item.seq for item in page]
    assert seqs == [1, 2, 3, 4, 5, 6, 7]
    assert [item.seq for item in store.items.page(run_id, state=ItemState.SUCCEEDED)] == [2, 6]
    assert [item.seq for item in store.items.page(run_id, state=ItemState.OPEN, outcome=Outcome.EXPIRED)] == [3]
    assert [item.seq for item in store.items.page(run_id, outcome=Outcome.ERRORED)] == [5]


def test_members_of_a_round(store: Store) -> None:
    """A batch's members are the open items it holds now, page by page, in the first round and in later ones."""
    run_id = plan(store, items=8, per_batch=8)
    send(store, run_id, 1)
    succeed(store, run_id, 1, 1)
    fail(store, run_id, 1, 2, 5, 8)
    add_waiting(store, run_id, 2, [2, 5, 8], round_=1)
    store.batches.assign(run_id, 2, [2, 5, 8], 1)
    assert [member.seq for member in store.items.members(run_id, 1)] == [3, 4, 6, 7]
    assert [member.seq for member in store.items.members(run_id, 1, after_seq=3, limit=2)] == [4, 6]
    assert [(member.seq, member.round, member.attempts) for member in store.items.members(run_id, 2)] == [
        (2, 1, 1),
        (5, 1, 1),
        (8, 1, 1),
    ]
    assert [member.seq for member in store.items.members(run_id, 2, after_seq=2, limit=1)] == [5]
    assert store.items.members(run_id, 9) == []
    assert [store.items.count_members(run_id, number) for number in (1, 2, 9)] == [4, 3, 0]


def test_membership_outlives_leaving(store: Store) -> None:
    """A batch knows an item it has answered or lost, and no other batch's."""
    run_id = plan(store, items=6, per_batch=3)
    send(store, run_id, 1)
    succeed(store, run_id, 1, 1)
    fail(store, run_id, 1, 2, outcome=Outcome.EXPIRED)
    assert store.items.has_member(run_id, 1, [1, 2, 3, 4, 99]) == {1, 2, 3}
    assert store.items.has_member(run_id, 2, [1, 2, 3, 4, 99]) == {4}


def test_pending_in_input_order(store: Store) -> None:
    """Pending items come in input order, page by page, and are counted."""
    run_id = plan(store, items=6, per_batch=6)
    send(store, run_id, 1)
    fail(store, run_id, 1, 5, 2, 4)
    assert [member.seq for member in store.items.pending(run_id)] == [2, 4, 5]
    assert [member.seq for member in store.items.pending(run_id, after_seq=2, limit=1)] == [4]
    assert store.items.count_pending(run_id) == 3


def test_attempts_of_an_item(store: Store) -> None:
    """Every attempt that failed is there, oldest first, its message cut to 2,000 characters."""
    run_id = plan(store, items=1, per_batch=1)
    send(store, run_id, 1)
    store.results.record(run_id, 1, Lane.BATCH, [], [Failure(1, Outcome.ERRORED, "t", "c", "é" * 3000)], at=NOW)
    fail(store, run_id, None, 1, outcome=Outcome.INVALID, final=True)
    assert store.items.attempts(run_id, 1) == [
        AttemptRow(1, 1, Lane.BATCH, 1, 0, Outcome.ERRORED, "t", "c", "é" * 2000, NOW),
        AttemptRow(1, 2, Lane.SYNC, None, 1, Outcome.INVALID, "overloaded", "529", "busy", NOW),
    ]
    assert [attempt.number for attempt in store.items.last_errors(run_id)] == [2]
    assert store.items.last_errors(run_id, after_seq=1) == []


def test_errors_by_kind(store: Store) -> None:
    """Failed items are grouped by their last error, refused records among them; retried and open ones are not."""
    run_id = create_run(store)
    store.items.add(run_id, [new_item(1), new_item(2), new_item(3), new_item(4), bad_item(5)])
    add_waiting(store, run_id, 1, [1, 2, 3, 4])
    store.runs.finish_plan(run_id, planned=5, inputs=[], errors_bytes=50, at=NOW)
    send(store, run_id, 1)
    fail(store, run_id, 1, 1, 2, final=True)
    fail(store, run_id, 1, 3)
    assert store.items.error_groups(run_id) == [
        ErrorGroup(Outcome.ERRORED, "overloaded", "529", "busy", 2),
        ErrorGroup(Outcome.ERRORED, "refused", None, "refused before it was sent", 1),
    ]


@pytest.mark.parametrize("method", ["pending", "members"])
def test_paging_uses_the_index(store: Store, method: str) -> None:
    """What is pending and what was resubmitted is found without reading the other items."""
    statements: list[str] = []
    run_id = plan(store, items=4, per_batch=4)
    send(store, run_id, 1)
    fail(store, run_id, 1, 2)
    add_waiting(store, run_id, 2, [2], round_=1)
    if method == "members":
        store.batches.assign(run_id, 2, [2], 1)
    store._db.connection.set_trace_callback(statements.append)
    found = store.items.pending(run_id) if method == "pending" else store.items.members(run_id, 2)
    store._db.connection.set_trace_callback(None)
    assert [member.seq for member in found] == [2]
    plans = store._db.rows(f"EXPLAIN QUERY PLAN {statements[-1]}")
    assert len(plans) == 1, "one search, no sort"
    assert {"pending": "items_pending", "members": "items_later"}[method] in plans[0][3]
