"""Transactions: durability, nesting, and two processes on one file."""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from batchctl.core.errors import StaleStateError, StateError
from batchctl.core.model import BatchState
from batchctl.state.salvage import damage_of
from batchctl.state.store import Store
from tests.state.making import NOW, create_run, plan, send, state_of

FULL, NORMAL = (2,), (1,)


@pytest.mark.parametrize(("durable", "sync"), [(True, FULL), (False, NORMAL)])
def test_durable_is_full_sync(store: Store, sync: tuple[int], *, durable: bool) -> None:
    """Only a durable transaction pays for full sync, and the next one starts from normal again (field report 181)."""
    with store.transaction(durable=durable):
        assert store._db.row("PRAGMA synchronous") == sync
    assert store._db.row("PRAGMA synchronous") == NORMAL
    with pytest.raises(ZeroDivisionError), store.transaction(durable=durable):
        raise ZeroDivisionError
    assert store._db.row("PRAGMA synchronous") == NORMAL


def test_an_error_keeps_nothing(store: Store) -> None:
    """What a transaction did before it failed is gone, and the store goes on."""

    def dies() -> None:
        with store.transaction(durable=True):
            create_run(store)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dies()
    assert store.runs.all() == []
    create_run(store)
    assert len(store.runs.all()) == 1


def test_a_caught_error_keeps_nothing_of_its_call(store: Store) -> None:
    """A call that fails inside a transaction leaves no half of itself in what the caller commits after all."""
    run_id = plan(store)
    with store.transaction(durable=True):
        store.runs.set_needs(run_id, "outer", NOW)
        with pytest.raises(StaleStateError):
            store.batches.split(run_id, 1, 99)
    assert [run.needs for run in store.runs.all()] == ["outer"]
    assert state_of(store, run_id, 1) == BatchState.WAITING


def test_durable_cannot_join_what_is_not(store: Store) -> None:
    """A promise of durability inside a transaction without it is a mistake, told at once."""
    with pytest.raises(RuntimeError, match="durable"), store.transaction():
        create_run(store)
    assert store.runs.all() == []


def test_two_processes_claim_one_batch(store: Store, path: Path) -> None:
    """Of two connections that send the same batch at once exactly one does (field report 177)."""
    run_id = plan(store)
    start = Barrier(2)

    def claim(key: str) -> bool:
        with Store.open(path) as other:
            start.wait()
            try:
                other.batches.intend(run_id, 1, key, NOW)
            except StaleStateError:
                return False
            return True

    with ThreadPoolExecutor(2) as pool:
        claims = list(pool.map(claim, ["a", "b"]))
    assert sorted(claims) == [False, True]
    batch = store.batches.get(run_id, 1)
    assert batch is not None
    assert batch.key == "ab"[claims.index(True)]


def test_two_processes_open_a_new_file(path: Path) -> None:
    """Two first commands at the same second both find the file migrated once."""
    start = Barrier(4)

    def first(number: int) -> int:
        start.wait()
        with Store.open(path) as store:
            return create_run(store, f"run-{number}")

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(first, range(4))) == [1, 2, 3, 4]


def test_readers_do_not_wait_for_a_writer(store: Store, path: Path) -> None:
    """A reader sees the last commit while a writer is in the middle of the next one."""
    run_id = plan(store)
    with store.transaction(durable=True):
        send(store, run_id, 1)
        with Store.open(path, readonly=True) as reader:
            assert state_of(reader, run_id, 1) == BatchState.WAITING
    with Store.open(path, readonly=True) as reader:
        assert state_of(reader, run_id, 1) == BatchState.IN_PROGRESS


def test_a_long_writer_is_named(store: Store, path: Path) -> None:
    """A second writer that waited in vain says so in words (field report 176)."""
    run_id = plan(store)
    with Store.open(path) as other, store.transaction():
        other._db.connection.execute("PRAGMA busy_timeout = 0")
        with pytest.raises(StateError, match="another program held the state file") as caught:
            other.batches.intend(run_id, 1, "key", NOW)
        assert caught.value.hint
    assert state_of(store, run_id, 1) == BatchState.WAITING


def test_a_mistake_in_sql_is_not_a_damaged_file(store: Store) -> None:
    """Errors of our own making keep their name, so nobody is sent to doctor for them."""
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        store._db.row("SELECT 1 FROM missing")
    with pytest.raises(sqlite3.ProgrammingError):
        store._db.row("SELECT ?", (1, 2))


@pytest.mark.slow
def test_a_killed_writer_leaves_all_or_nothing(store: Store, path: Path) -> None:
    """A process killed inside a transaction leaves the last commit, and the file opens at once."""
    run_id = plan(store)
    store.close()
    child = os.fork()
    if child == 0:  # pragma: no cover  # the process that dies
        dying = Store.open(path)
        send(dying, run_id, 1)
        with dying.transaction(durable=True):
            send(dying, run_id, 2)
            os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with Store.open(path) as after:
        assert [batch.state for batch in after.batches.all(run_id)] == [BatchState.IN_PROGRESS, BatchState.WAITING]
    assert damage_of(path) == []
