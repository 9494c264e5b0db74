"""Planning a run: its rows, its ids, the one commit that opens it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from batchctl.core.errors import InputError, StaleStateError
from batchctl.core.model import ItemState, Outcome, RunState
from batchctl.state.rows import moment, stamp
from batchctl.state.runs import DuplicateIdError
from batchctl.state.store import Store
from tests.state.making import LATER, NOW, add_waiting, bad_item, create_run, force, new_item, plan, send, succeed


def finish(store: Store, run_id: int, planned: int, errors_bytes: int = 0) -> None:
    """Open the run."""
    store.runs.finish_plan(run_id, planned=planned, inputs=["items.jsonl"], errors_bytes=errors_bytes, at=LATER)


def test_a_run_as_it_was_made(store: Store) -> None:
    """Everything given at creation is read back as it was."""
    run_id = store.runs.create(
        "night", "t0ken", "anthropic", "/v1/messages", "m", {"text": "é\u2028", "n": [1]}, "fp", "s3://b/x", NOW
    )
    run = store.runs.by_id(run_id)
    assert run == store.runs.get("night")
    assert run is not None
    assert (run.token, run.state, run.provider, run.endpoint) == (
        "t0ken",
        RunState.PLANNING,
        "anthropic",
        "/v1/messages",
    )
    assert (run.settings, run.inputs, run.out) == ({"text": "é\u2028", "n": [1]}, [], "s3://b/x")
    assert (run.created_at, run.updated_at, run.needs, run.open) == (NOW, NOW, None, 0)


def test_a_name_is_taken_once(store: Store) -> None:
    """A second run of the same name is refused with the ways out."""
    create_run(store, "night")
    with pytest.raises(InputError, match="'night' exists") as caught:
        create_run(store, "night", token="other")
    assert "--name" in str(caught.value.hint)
    assert len(store.runs.all()) == 1


def test_opening_a_run(store: Store) -> None:
    """The plan's commit counts the items, bad records among them, and makes ids findable."""
    run_id = create_run(store)
    store.items.add(run_id, [new_item(1), bad_item(2), new_item(3, id_="007"), new_item(4, id_="7")])
    add_waiting(store, run_id, 1, [1, 3, 4])
    assert store.items.lookup(run_id, ["007"]) == {}
    finish(store, run_id, 4, errors_bytes=50)
    run = store.runs.by_id(run_id)
    assert run is not None
    assert (run.state, run.planned, run.succeeded, run.failed, run.open) == (RunState.OPEN, 4, 0, 1, 3)
    assert (run.inputs, run.errors_bytes, run.updated_at) == (["items.jsonl"], 50, LATER)
    assert store.items.lookup(run_id, ["007", "7", "nobody"]) == {"007": 3, "7": 4}
    assert [(item.state, item.outcome) for item in store.items.page(run_id, state=ItemState.FAILED)] == [
        (ItemState.FAILED, Outcome.ERRORED)
    ]


def test_duplicate_ids_name_both_lines(store: Store) -> None:
    """The first ten duplicate ids are told with all their places, and the run stays in planning."""
    run_id = create_run(store)
    ids = [f"id-{number}" for number in range(12)]
    store.items.add(run_id, [new_item(seq, id_=id_) for seq, id_ in enumerate([*ids, *ids, "id-3"], 1)])
    add_waiting(store, run_id, 1, list(range(1, 26)))
    with pytest.raises(DuplicateIdError, match="'id-0' is on lines 1 and 13") as caught:
        finish(store, run_id, 25)
    assert [id_ for id_, _ in caught.value.duplicates] == ids[:10]
    assert caught.value.duplicates[3] == ("id-3", [(0, 4), (0, 16), (0, 25)])
    assert caught.value.exit_code == 2
    assert [run.state for run in store.runs.all()] == [RunState.PLANNING]
    assert store.items.lookup(run_id, ids) == {}


def test_the_same_id_in_two_runs(store: Store) -> None:
    """Ids are unique in their run only."""
    assert [store.items.lookup(plan(store, name=name), ["item-2"]) for name in ("a", "b")] == [{"item-2": 2}] * 2


@pytest.mark.parametrize(
    ("planned", "batch", "problem"),
    [
        (3, [1, 2], "planned is 3, but the items say 2"),
        (2, [1], "batch 1 has 1 requests, but holds 2 items"),
        (2, [1, 2, 3], "batch 1 has 3 requests, but holds 2 items"),
        (2, [2, 3], "outside its 2 to 3"),
        (2, [], "2 items are in batch 1, which does not exist"),
    ],
)
def test_a_plan_that_does_not_add_up(store: Store, planned: int, batch: list[int], problem: str) -> None:
    """A run whose rows are not what the planner says is not opened."""
    run_id = create_run(store)
    store.items.add(run_id, [new_item(1), new_item(2)])
    if batch:
        add_waiting(store, run_id, 1, batch)
    with pytest.raises(StaleStateError, match=problem):
        finish(store, run_id, planned)
    assert [run.state for run in store.runs.all()] == [RunState.PLANNING]


def test_a_plan_is_finished_once(store: Store) -> None:
    """A second finish of the same plan raises and is not taken for duplicate ids."""
    run_id = plan(store)
    with pytest.raises(StaleStateError, match="not in planning"):
        finish(store, run_id, 6)


def test_purging_a_dead_plan(store: Store) -> None:
    """A plan whose process died goes with all its rows; its name is free again and other runs are untouched."""
    other = plan(store, name="other")
    run_id = create_run(store)
    store.items.add(run_id, [new_item(1)])
    add_waiting(store, run_id, 1, [1])
    store.events.add(run_id, 1, NOW, 20, "plan.started", "planning", {})
    assert [run.id for run in store.runs.planning()] == [run_id]
    store.runs.purge(run_id)
    assert [run.name for run in store.runs.all()] == ["other"]
    assert store.items.page(run_id) == []
    assert store.batches.all(run_id) == []
    assert store.runs.verify(other) == []
    create_run(store)


@pytest.mark.parametrize("state", sorted(set(RunState) - {RunState.PLANNING}))
def test_only_plans_are_purged(store: Store, path: Path, state: RunState) -> None:
    """A run that may have been sent is never deleted."""
    run_id = plan(store)
    force(path, run_id, state)
    with pytest.raises(StaleStateError, match=state):
        store.runs.purge(run_id)
    assert len(store.items.page(run_id)) == 6


def test_runs_a_poll_looks_at(store: Store, path: Path) -> None:
    """Everything planned that is not finished; no plans, no done runs."""
    for name in ("planning", "open", "stopped", "canceled"):
        force(path, plan(store, name=name), name)
    done = plan(store, items=1, name="done")
    succeed(store, done, 1, 1)
    store.runs.finish(done, at=LATER)
    assert [run.name for run in store.runs.open()] == ["open", "stopped", "canceled"]


def test_needs_and_settings(store: Store) -> None:
    """What a person must do and the settings can be replaced; of a missing run they cannot."""
    run_id = plan(store)
    store.runs.set_needs(run_id, "top up the account", LATER)
    store.runs.set_settings(run_id, {"deadline": 5}, LATER)
    run = store.runs.by_id(run_id)
    assert run is not None
    assert (run.needs, run.settings, run.updated_at) == ("top up the account", {"deadline": 5}, LATER)
    with pytest.raises(StaleStateError, match="needs of run 9"):
        store.runs.set_needs(9, None, LATER)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (datetime(2026, 1, 2, 3, 4, 5, 6789, tzinfo=UTC), "2026-01-02T03:04:05.006Z"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=5, minutes=30))), "2026-01-01T21:34:05.000Z"),
        (datetime(2026, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC), "2026-01-01T00:00:00.999Z"),
    ],
)
def test_times_are_utc_text(given: datetime, text: str) -> None:
    """Times are kept as UTC text with milliseconds, whatever zone they came in."""
    assert stamp(given) == text
    assert abs(moment(text) - given) < timedelta(milliseconds=1)


def test_times_without_a_zone_are_refused() -> None:
    """A time that could mean anything is a mistake."""
    with pytest.raises(ValueError, match="time zone"):
        stamp(datetime(2026, 1, 1))  # noqa: DTZ001  # the mistake itself


def test_events_are_kept_in_order(store: Store) -> None:
    """Events come back as they were, page by page, each run's own."""
    run_id, other = plan(store), plan(store, name="other")
    for number in range(3):
        store.events.add(run_id, number, NOW, 20, "batch.checked", f"look {number}", {"n": number, "s": "ü"})
    store.events.add(other, None, NOW, 30, "run.stopped", "no", {})
    store.events.add(None, None, NOW, 30, "doctor.found", "nothing", {})
    first = store.events.list(run_id, limit=2)
    assert [(event.batch, event.text, event.data, event.at) for event in first] == [
        (0, "look 0", {"n": 0, "s": "ü"}, NOW),
        (1, "look 1", {"n": 1, "s": "ü"}, NOW),
    ]
    assert [event.text for event in store.events.list(run_id, after_id=first[-1].id)] == ["look 2"]
    assert [event.level for event in store.events.list(other)] == [30]


def test_a_done_run_is_not_looked_at(store: Store) -> None:
    """A run is done when its last item is, and a poll leaves it alone."""
    run_id = plan(store, items=1, per_batch=1)
    send(store, run_id, 1)
    succeed(store, run_id, 1, 1)
    store.runs.move(run_id, RunState.DONE, needs=None, at=LATER)
    assert store.runs.open() == []
