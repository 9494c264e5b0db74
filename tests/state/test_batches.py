"""Batches: packing, sending, settling, splitting, giving up."""

from __future__ import annotations

from datetime import timedelta

import pytest

from batchctl.core.errors import InputError, StaleStateError
from batchctl.core.model import BatchState, CancelCause, Outcome
from batchctl.state.rows import BatchRow, Load
from batchctl.state.store import Store
from tests.state.making import LATER, LENGTH, NOW, TOKENS, add_waiting, create, fail, plan, send, state_of, succeed


def batch(store: Store, run_id: int, number: int) -> BatchRow:
    """A batch that is there."""
    row = store.batches.get(run_id, number)
    assert row is not None
    return row


def test_sending_step_by_step(store: Store) -> None:
    """Intent, file and id are written as they come to be, and read back."""
    run_id = plan(store)
    store.batches.intend(run_id, 1, "key", NOW)
    store.batches.set_file(run_id, 1, "file-1")
    sending = batch(store, run_id, 1)
    assert (sending.state, sending.key, sending.intent_at, sending.file_id) == ("submitting", "key", NOW, "file-1")
    create(store, run_id, 1, "batch_abc", certain=False)
    sent = batch(store, run_id, 1)
    assert (sent.state, sent.batch_id, sent.certain, sent.file_id) == ("in_progress", "batch_abc", False, "file-1")
    assert (sent.provider_status, sent.submitted_at) == ("validating", NOW)
    assert (sent.expires_at, sent.next_check_at) == (NOW + timedelta(hours=24), LATER)
    store.batches.confirm(run_id, 1)
    assert batch(store, run_id, 1).certain
    with pytest.raises(StaleStateError, match="to be confirmed"):
        store.batches.confirm(run_id, 1)


def test_a_key_is_used_once(store: Store) -> None:
    """An intent key never serves two sendings, in whatever run."""
    run_id, other = plan(store), plan(store, name="other")
    store.batches.intend(run_id, 1, "key", NOW)
    with pytest.raises(StaleStateError, match="used before"):
        store.batches.intend(other, 1, "key", NOW)
    assert state_of(store, other, 1) == BatchState.WAITING


def test_a_provider_batch_has_one_owner(store: Store) -> None:
    """A batch id that another batch has is refused, naming it (never pay twice, never count twice)."""
    run_id, other = plan(store), plan(store, name="other")
    send(store, run_id, 2)
    store.batches.intend(other, 1, "key", NOW)
    with pytest.raises(InputError, match=f"batch-{run_id}-2 belongs to batch 2 of run 'night'"):
        create(store, other, 1, f"batch-{run_id}-2")
    assert state_of(store, other, 1) == BatchState.SUBMITTING
    assert store.batches.owner(f"batch-{run_id}-2") == "night"
    assert store.batches.owner("nobody") is None


def test_a_number_is_used_once(store: Store) -> None:
    """A batch number is taken once in its run, and a batch needs its run."""
    run_id = plan(store)
    assert store.batches.next_number(run_id) == 3
    with pytest.raises(StaleStateError, match="batch 2"):
        add_waiting(store, run_id, 2, [1])
    with pytest.raises(StaleStateError, match="run 9"):
        add_waiting(store, 9, 1, [1])


def test_ids_already_accounted_for(store: Store) -> None:
    """Settling leaves out its own ids and those other runs are certain of; another run's guess stays a candidate."""
    run_id, other = plan(store), plan(store, name="other")
    send(store, run_id, 1)
    for number, certain in ((1, True), (2, False)):
        store.batches.intend(other, number, f"key-{number}", NOW)
        create(store, other, number, f"other-{number}", certain=certain)
    assert store.batches.known_ids(run_id) == {f"batch-{run_id}-1", "other-1"}
    assert store.batches.known_ids(other) == {f"batch-{run_id}-1", "other-1", "other-2"}


@pytest.mark.parametrize("keep_file", [True, False])
def test_back_to_waiting(store: Store, *, keep_file: bool) -> None:
    """A batch that was surely not taken can be sent again: new key, no id, no round spent, its file if told so."""
    run_id = plan(store)
    store.batches.intend(run_id, 1, "key", NOW)
    store.batches.set_file(run_id, 1, "file-1")
    create(store, run_id, 1, "batch_abc")
    store.batches.back_to_waiting(run_id, 1, not_before=LATER, refusals=2, keep_file=keep_file)
    waiting = batch(store, run_id, 1)
    assert (waiting.state, waiting.key, waiting.batch_id, waiting.intent_at) == ("waiting", None, None, None)
    assert (waiting.not_before, waiting.refusals) == (LATER, 2)
    assert waiting.file_id == ("file-1" if keep_file else None)
    assert [member.round for member in store.items.members(run_id, 1)] == [0, 0, 0]
    store.batches.intend(run_id, 1, "key-2", NOW)
    create(store, run_id, 1, "batch_abc")
    assert batch(store, run_id, 1).not_before is None


def test_a_file_is_not_used_again_without_an_item(store: Store) -> None:
    """An uploaded file that holds a meanwhile answered item is dropped, and the batch is as small as it now is."""
    run_id = plan(store)
    send(store, run_id, 1)
    fail(store, run_id, 1, 1, outcome=Outcome.EXPIRED)
    add_waiting(store, run_id, 3, [1], round_=1)
    store.batches.assign(run_id, 3, [1], 1)
    store.batches.intend(run_id, 2, "key", NOW)
    store.batches.set_file(run_id, 2, "file-2")
    fail(store, run_id, 2, 4, final=True)
    assert batch(store, run_id, 2).requests == 3, "what was sent is not changed while the create is open"
    store.batches.back_to_waiting(run_id, 2, not_before=None, refusals=0, keep_file=True)
    waiting = batch(store, run_id, 2)
    assert (waiting.file_id, waiting.requests, waiting.size, waiting.tokens) == (None, 2, 2 * (LENGTH + 1), 2 * TOKENS)


def test_every_other_create_in_doubt_is_a_rival(store: Store) -> None:
    """What fits one batch by count fits them all, those of the same run included."""
    run_id = plan(store)
    other = plan(store, name="other")
    store.batches.intend(run_id, 1, "key", NOW)
    assert store.batches.rivals(run_id, 1) == []
    store.batches.intend(run_id, 2, "key 2", NOW)
    assert store.batches.rivals(run_id, 1) == ["night"]
    create(store, run_id, 2, "batch_2")
    store.batches.intend(other, 1, "key 3", NOW)
    assert store.batches.rivals(run_id, 1) == ["other"]


def test_unknown_gives_up_a_guess(store: Store) -> None:
    """A batch found by count and time whose results are not ours is unknown, and free for its owner."""
    run_id = plan(store)
    store.batches.intend(run_id, 1, "key", NOW)
    create(store, run_id, 1, "batch_abc", certain=False)
    store.batches.ended(run_id, 1, NOW)
    store.batches.unknown(run_id, 1, "its results hold other ids")
    unknown = batch(store, run_id, 1)
    assert (unknown.batch_id, unknown.key) == (None, "key")
    assert unknown.faults == [{"code": "unknown", "message": "its results hold other ids"}]
    create(store, run_id, 1, "batch_right")
    assert batch(store, run_id, 1).faults == []


def test_looking_at_a_batch(store: Store) -> None:
    """A look keeps what it does not know, and is only for batches that are with the provider."""
    run_id = plan(store)
    with pytest.raises(StaleStateError, match="check of batch 1"):
        store.batches.checked(run_id, 1, status="x", counts={}, next_check_at=LATER)
    send(store, run_id, 1)
    store.batches.checked(run_id, 1, status="in_progress", counts={"completed": 2}, next_check_at=LATER)
    store.batches.checked(run_id, 1, status=None, counts=None, next_check_at=LATER, failures=3)
    row = batch(store, run_id, 1)
    assert (row.provider_status, row.provider_counts, row.check_failures) == ("in_progress", {"completed": 2}, 3)
    assert (row.next_check_at, row.expires_at) == (LATER, NOW + timedelta(hours=24))


def test_looks_start_anew(store: Store) -> None:
    """Looks in vain are counted until the batch goes a step forward."""
    run_id = plan(store)
    store.batches.intend(run_id, 1, "key", NOW)
    assert [store.batches.looked(run_id, 1) for _ in range(3)] == [1, 2, 3]
    create(store, run_id, 1)
    assert store.batches.looked(run_id, 1, next_check_at=NOW) == 1
    assert batch(store, run_id, 1).next_check_at == NOW
    store.batches.ended(run_id, 1, NOW)
    assert batch(store, run_id, 1).looks == 0
    with pytest.raises(StaleStateError, match="batch 9"):
        store.batches.looked(run_id, 9)


def test_what_stands_in_the_queue(store: Store) -> None:
    """Batches sent, or perhaps sent, count against the queue limits; waiting and ended ones do not."""
    run_id = plan(store, items=8, per_batch=2)
    assert store.batches.open_load(run_id) == Load(0, 0, 0)
    for number in (1, 2):
        send(store, run_id, number)
    store.batches.intend(run_id, 3, "key", NOW)
    store.batches.ended(run_id, 1, NOW)
    assert store.batches.open_load(run_id) == Load(2, 4, 4 * TOKENS)
    assert [row.number for row in store.batches.in_state(run_id, BatchState.WAITING, BatchState.ENDED)] == [1, 4]


def test_the_way_to_its_end(store: Store) -> None:
    """Why a batch was canceled, when it ended and what its results held besides answers is kept."""
    run_id = plan(store)
    send(store, run_id, 1)
    store.batches.canceling(run_id, 1, CancelCause.DEADLINE)
    store.batches.ended(run_id, 1, NOW)
    succeed(store, run_id, 1, 1, 2, 3)
    store.batches.collected(run_id, 1, LATER, quarantined=4)
    row = batch(store, run_id, 1)
    assert (row.cancel_cause, row.ended_at, row.collected_at) == (CancelCause.DEADLINE, NOW, LATER)
    assert row.quarantined == 4


def test_collected_means_every_item(store: Store) -> None:
    """A batch with an unanswered item is not collected, whoever says so (never lose a result)."""
    run_id = plan(store)
    send(store, run_id, 1)
    succeed(store, run_id, 1, 1, 2)
    store.batches.ended(run_id, 1, NOW)
    with pytest.raises(StaleStateError, match="open items in batch 1"):
        store.batches.collected(run_id, 1, NOW)
    fail(store, run_id, 1, 3, outcome=Outcome.MISSING)
    store.batches.collected(run_id, 1, LATER)
    assert batch(store, run_id, 1).collected_at == LATER


@pytest.mark.parametrize("sending", [False, True])
def test_split(store: Store, *, sending: bool) -> None:
    """A batch too large for the provider becomes two whose sums add up, and is not sent itself."""
    run_id = plan(store, items=5, per_batch=5)
    if sending:
        store.batches.intend(run_id, 1, "key", NOW)
    assert store.batches.split(run_id, 1, 3) == (2, 3)
    assert [(row.state, row.requests, row.size, row.tokens) for row in store.batches.all(run_id)] == [
        ("withdrawn", 5, 500, 50),
        ("waiting", 2, 200, 20),
        ("waiting", 3, 300, 30),
    ]
    assert [[member.seq for member in store.items.members(run_id, number)] for number in (1, 2, 3)] == [
        [],
        [1, 2],
        [3, 4, 5],
    ]
    assert store.runs.verify(run_id) == []


@pytest.mark.parametrize("cut", [1, 6])
def test_split_into_nothing(store: Store, cut: int) -> None:
    """A half without an item is refused and the batch stays as it was."""
    run_id = plan(store, items=5, per_batch=5)
    with pytest.raises(StaleStateError, match="cannot be cut"):
        store.batches.split(run_id, 1, cut)
    assert [row.state for row in store.batches.all(run_id)] == ["waiting"]
    with pytest.raises(StaleStateError, match="no batch 9"):
        store.batches.split(run_id, 9, 1)


def test_withdrawn_and_rejected_items_are_pending(store: Store) -> None:
    """Items of a batch that never ran go back without a spent round or an attempt."""
    run_id = plan(store, items=4, per_batch=2)
    send(store, run_id, 1)
    store.batches.reject(run_id, 1, [{"code": "mismatched_model", "message": "two models", "line": 2}], NOW)
    store.batches.withdraw(run_id, 2)
    assert [(member.seq, member.round, member.attempts) for member in store.items.pending(run_id)] == [
        (seq, 0, 0) for seq in (1, 2, 3, 4)
    ]
    assert batch(store, run_id, 1).faults[0]["line"] == 2
    assert store.runs.outcomes(run_id) == {}
    assert store.runs.verify(run_id) == []


def test_giving_up_a_batch(store: Store) -> None:
    """Items of a batch given up by hand are pending in the next round; a late answer is still taken, once."""
    run_id = plan(store, items=3, per_batch=3)
    send(store, run_id, 1)
    succeed(store, run_id, 1, 1)
    store.batches.abandon(run_id, 1, NOW)
    assert [(member.seq, member.round) for member in store.items.pending(run_id)] == [(2, 1), (3, 1)]
    assert store.runs.outcomes(run_id) == {"succeeded": 1, "expired": 2}
    assert store.runs.verify(run_id) == []
    succeed(store, run_id, 1, 2)
    store.batches.collected(run_id, 1, NOW)
    row = batch(store, run_id, 1)
    assert (row.succeeded, row.expired, row.late) == (2, 2, 1)
    assert store.runs.verify(run_id) == []


@pytest.mark.parametrize(
    ("seqs", "round_", "number"),
    [
        ([1, 2], 1, 2),  # 2 is not pending
        ([1, 9], 1, 2),  # 9 is not there
        ([3], 1, 2),  # 3 is outside the batch's range
        ([1], 0, 2),  # the batch is of another round
        ([1], 1, 1),  # the batch is not waiting
    ],
)
def test_assign_takes_all_or_nothing(store: Store, seqs: list[int], round_: int, number: int) -> None:
    """Only pending items of the batch's round and range go into a waiting batch; one that does not fit stops all."""
    run_id = plan(store, items=3, per_batch=3)
    send(store, run_id, 1)
    fail(store, run_id, 1, 1, 3)
    store.batches.add_waiting(run_id, 2, 1, 2, 200, 20, 1, 2)
    with pytest.raises(StaleStateError):
        store.batches.assign(run_id, number, seqs, round_)
    assert store.items.count_pending(run_id) == 2


def test_rounds_are_not_mixed(store: Store) -> None:
    """An item of another round than its batch would be lost to its members; it is refused."""
    run_id = plan(store, items=3, per_batch=3)
    send(store, run_id, 1)
    fail(store, run_id, 1, 1)
    fail(store, run_id, 1, 2, spends_round=False)
    add_waiting(store, run_id, 2, [1, 2], round_=1)
    with pytest.raises(StaleStateError):
        store.batches.assign(run_id, 2, [1, 2], 1)


def test_the_file_of_a_sent_batch_stays(store: Store) -> None:
    """The input file of a batch that exists cannot be taken from it."""
    run_id = plan(store)
    send(store, run_id, 1)
    with pytest.raises(StaleStateError, match="file of batch 1"):
        store.batches.set_file(run_id, 1, None)
