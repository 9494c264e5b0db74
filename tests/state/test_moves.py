"""Every move of a run and of a batch, by table: those the model lists happen, no other does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from batchctl.core.errors import StaleStateError
from batchctl.core.model import BATCH_MOVES, RUN_MOVES, BatchState, CancelCause, RunState
from batchctl.state.store import Store
from tests.state.making import LATER, NOW, create, force, plan, state_of, succeed

Move = Callable[[Store, int], None]

BATCH_STEPS: dict[BatchState, Move] = {
    BatchState.WAITING: lambda s, run: s.batches.back_to_waiting(run, 1, not_before=LATER, refusals=1),
    BatchState.SUBMITTING: lambda s, run: s.batches.intend(run, 1, "key", NOW),
    BatchState.UNKNOWN: lambda s, run: s.batches.unknown(run, 1, "two candidates"),
    BatchState.IN_PROGRESS: lambda s, run: create(s, run, 1),
    BatchState.CANCELING: lambda s, run: s.batches.canceling(run, 1, CancelCause.ASKED),
    BatchState.ENDED: lambda s, run: s.batches.ended(run, 1, NOW),
    BatchState.COLLECTED: lambda s, run: s.batches.collected(run, 1, NOW),
    BatchState.REJECTED: lambda s, run: s.batches.reject(run, 1, [{"code": "c", "message": "m"}], NOW),
    BatchState.WITHDRAWN: lambda s, run: s.batches.withdraw(run, 1),
    BatchState.ABANDONED: lambda s, run: s.batches.abandon(run, 1, NOW),
}


@pytest.mark.parametrize("target", BatchState)
@pytest.mark.parametrize("source", BatchState)
def test_batch_moves(store: Store, path: Path, source: BatchState, target: BatchState) -> None:
    """A batch moves where the model says; anything else raises and changes nothing."""
    run_id = plan(store, items=2, per_batch=2)
    if target == BatchState.COLLECTED:
        succeed(store, run_id, 1, 1, 2)
    force(path, run_id, source, 1)
    before = store.batches.get(run_id, 1), store.items.page(run_id), store.runs.outcomes(run_id)
    if target in BATCH_MOVES[source]:
        BATCH_STEPS[target](store, run_id)
        assert state_of(store, run_id, 1) == target
        assert store.runs.verify(run_id) == []
    else:
        with pytest.raises(StaleStateError):
            BATCH_STEPS[target](store, run_id)
        assert (store.batches.get(run_id, 1), store.items.page(run_id), store.runs.outcomes(run_id)) == before


@pytest.mark.parametrize("target", RunState)
@pytest.mark.parametrize("source", RunState)
def test_run_moves(store: Store, path: Path, source: RunState, target: RunState) -> None:
    """A run moves where the model says; out of planning only by finishing the plan."""
    run_id = plan(store, items=2, per_batch=2)
    succeed(store, run_id, 1, 1, 2)
    force(path, run_id, source)
    before = store.runs.by_id(run_id)
    if target in RUN_MOVES[source] and source != RunState.PLANNING:
        store.runs.move(run_id, target, needs="look", at=LATER)
        run = store.runs.get("night")
        assert run is not None
        assert (run.state, run.needs, run.updated_at) == (target, "look", LATER)
    else:
        with pytest.raises(StaleStateError):
            store.runs.move(run_id, target, needs="look", at=LATER)
        assert store.runs.by_id(run_id) == before


@pytest.mark.parametrize("source", [RunState.OPEN, RunState.STOPPED, RunState.CANCELED])
def test_done_means_every_item(store: Store, path: Path, source: RunState) -> None:
    """A run with an open item is not done, whoever says so."""
    run_id = plan(store, items=2, per_batch=2)
    succeed(store, run_id, 1, 1)
    force(path, run_id, source)
    with pytest.raises(StaleStateError, match="1 items open"):
        store.runs.finish(run_id, at=NOW)


def test_a_canceled_run_stays_canceled_when_it_is_closed(store: Store, path: Path) -> None:
    """Its files are published like any other's; it is closed once."""
    run_id = plan(store, items=1)
    succeed(store, run_id, 1, 1)
    force(path, run_id, RunState.CANCELED)
    store.runs.finish(run_id, at=NOW)
    run = store.runs.by_id(run_id)
    assert run is not None
    assert (run.state, run.finished_at) == (RunState.CANCELED, NOW)
    with pytest.raises(StaleStateError, match="cannot be closed"):
        store.runs.finish(run_id, at=NOW)


def test_a_missing_batch_is_named(store: Store) -> None:
    """A move of a batch that is not there says so."""
    run_id = plan(store)
    with pytest.raises(StaleStateError, match="batch 9 of run 1 is missing"):
        store.batches.intend(run_id, 9, "key", NOW)


def test_a_missing_run_is_named(store: Store) -> None:
    """A move of a run that is not there says so."""
    with pytest.raises(StaleStateError, match="run 9 is missing"):
        store.runs.move(9, RunState.DONE, needs=None, at=NOW)
