"""The store under any order of steps: nothing is lost, counted twice or in two places."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batchctl.core.errors import StaleStateError
from batchctl.core.model import BatchState, CancelCause, ItemState, Lane, Outcome, RunState
from batchctl.state.rows import BatchRow, Failure, Success
from batchctl.state.store import Store
from tests.state.making import LATER, NOW, add_waiting, bad_item, create, create_run, new_item

UNCERTAIN = (BatchState.SUBMITTING, BatchState.UNKNOWN)
ANSWERING = (BatchState.IN_PROGRESS, BatchState.CANCELING, BatchState.ENDED)
FAILED = st.sampled_from([Outcome.ERRORED, Outcome.EXPIRED, Outcome.CANCELED, Outcome.MISSING, Outcome.INVALID])


class Life(RuleBasedStateMachine):
    """A run's life in random steps, beside a model that knows only which items ended how."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "batchctl.db"
        self.store = Store.open(self.path)
        self.run = 0
        self.ended: dict[int, ItemState] = {}  # what each settled item must be
        self.members: dict[int, set[int]] = {}  # every item each sent batch was ever sent with
        self.keys = 0
        self.now = NOW

    def teardown(self) -> None:
        """Close and remove the file."""
        self.store.close()
        self.folder.cleanup()

    def batches(self, *states: BatchState) -> list[BatchRow]:
        """Batches in one of these states."""
        return self.store.batches.in_state(self.run, *states)

    def choose(self, data: st.DataObject, *states: BatchState) -> BatchRow | None:
        """One batch in one of these states, if there is one."""
        found = self.batches(*states)
        return data.draw(st.sampled_from(found)) if found else None

    def held(self, number: int) -> list[int]:
        """The open items a batch holds."""
        return [member.seq for member in self.store.items.members(self.run, number)]

    @initialize(items=st.integers(1, 12), per_batch=st.integers(1, 5), bad=st.booleans())
    def plan(self, items: int, per_batch: int, *, bad: bool) -> None:
        """Plan a run, perhaps with a bad record at its end."""
        self.run = create_run(self.store)
        seqs = list(range(1, items + 1))
        self.store.items.add(self.run, [new_item(seq, (seq - 1) // per_batch + 1) for seq in seqs])
        for start in range(0, items, per_batch):
            add_waiting(self.store, self.run, start // per_batch + 1, seqs[start : start + per_batch])
        if bad:
            self.store.items.add(self.run, [bad_item(items + 1)])
            self.ended[items + 1] = ItemState.FAILED
        self.planned = items + bad
        self.store.runs.finish_plan(
            self.run, planned=self.planned, inputs=[], errors_bytes=50 if bad else 0, at=self.now
        )

    @rule(data=st.data())
    def intend(self, data: st.DataObject) -> None:
        """Write the intent of a waiting batch."""
        if batch := self.choose(data, BatchState.WAITING):
            self.keys += 1
            self.store.batches.intend(self.run, batch.number, f"key-{self.keys}", self.now)

    @rule(data=st.data(), certain=st.booleans())
    def create(self, data: st.DataObject, *, certain: bool) -> None:
        """The create is answered, or settling finds it."""
        if batch := self.choose(data, *UNCERTAIN):
            create(self.store, self.run, batch.number, f"id-{self.keys}-{batch.number}", certain=certain)
            self.members.setdefault(batch.number, set()).update(self.held(batch.number))

    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Settling cannot tell whether a create happened."""
        if batch := self.choose(data, BatchState.SUBMITTING):
            self.store.batches.unknown(self.run, batch.number, "two candidates")

    @rule(data=st.data(), keep=st.booleans())
    def absent(self, data: st.DataObject, *, keep: bool) -> None:
        """Settling is sure that nothing was created."""
        if batch := self.choose(data, *UNCERTAIN):
            self.store.batches.back_to_waiting(self.run, batch.number, not_before=None, refusals=0, keep_file=keep)

    @rule(data=st.data())
    def move_on(self, data: st.DataObject) -> None:
        """The provider cancels or ends a batch."""
        if batch := self.choose(data, BatchState.IN_PROGRESS, BatchState.CANCELING):
            if batch.state == BatchState.IN_PROGRESS and data.draw(st.booleans()):
                self.store.batches.canceling(self.run, batch.number, CancelCause.ASKED)
            else:
                self.store.batches.ended(self.run, batch.number, self.now)

    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        """The provider refuses a batch whole: for good, or for want of room."""
        batch = self.choose(data, BatchState.IN_PROGRESS)
        if batch is None or self.settled_by(batch):
            return
        if data.draw(st.booleans()):
            self.store.batches.reject(self.run, batch.number, [{"code": "no"}], self.now)
        else:
            self.store.batches.back_to_waiting(self.run, batch.number, not_before=LATER, refusals=batch.refusals + 1)

    def settled_by(self, batch: BatchRow) -> int:
        """How many outcomes a batch has: one that has any is not refused whole."""
        return batch.succeeded + batch.errored + batch.expired + batch.canceled + batch.missing + batch.invalid

    @rule(data=st.data())
    def split(self, data: st.DataObject) -> None:
        """The provider says a batch is too large."""
        batch = self.choose(data, BatchState.WAITING, BatchState.SUBMITTING)
        if batch is None:
            return
        held = self.held(batch.number)
        if len(held) < 2:
            with pytest.raises(StaleStateError):
                self.store.batches.split(self.run, batch.number, batch.first_seq)
        else:
            self.store.batches.split(self.run, batch.number, data.draw(st.sampled_from(held[1:])))

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        """A waiting batch is taken apart."""
        if batch := self.choose(data, BatchState.WAITING):
            self.store.batches.withdraw(self.run, batch.number)

    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        """A person gives a batch up."""
        if batch := self.choose(data, BatchState.IN_PROGRESS, BatchState.CANCELING):
            self.store.batches.abandon(self.run, batch.number, self.now)

    @rule(data=st.data(), outcome=FAILED, final=st.booleans(), spends=st.booleans())
    def collect(self, data: st.DataObject, outcome: Outcome, *, final: bool, spends: bool) -> None:
        """Part of a batch's answers come in, in any order, some failed."""
        if batch := self.choose(data, *ANSWERING):
            held = data.draw(st.permutations(self.held(batch.number)))
            answered = held[: data.draw(st.integers(0, len(held)))]
            good = data.draw(st.integers(0, len(answered)))
            self.record(batch.number, answered[:good], answered[good:], outcome, final=final, spends=spends)

    @rule(data=st.data(), outcome=FAILED, final=st.booleans())
    def answer_at_once(self, data: st.DataObject, outcome: Outcome, *, final: bool) -> None:
        """The sync lane answers pending items."""
        pending = [member.seq for member in self.store.items.pending(self.run)]
        good = data.draw(st.integers(0, len(pending)))
        self.record(None, pending[:good], pending[good:], outcome, final=final, spends=False)

    def record(
        self, number: int | None, good: list[int], bad: list[int], outcome: Outcome, *, final: bool, spends: bool
    ) -> None:
        """Record outcomes in the store and in the model."""
        results, errors = self.store.results.ends(self.run)
        failures = [
            Failure(
                seq,
                outcome,
                final=final,
                out_offset=errors + 50 * n,
                out_length=50 if final else None,
                spends_round=spends,
            )
            for n, seq in enumerate(bad)
        ]
        self.store.results.record(
            self.run,
            number,
            Lane.SYNC if number is None else Lane.BATCH,
            [Success(seq, results + 50 * n, 50) for n, seq in enumerate(good)],
            failures,
            at=self.now,
            results_end=results + 50 * len(good),
            errors_end=errors + 50 * len(bad) * final,
        )
        self.ended.update(dict.fromkeys(good, ItemState.SUCCEEDED))
        if final:
            self.ended.update(dict.fromkeys(bad, ItemState.FAILED))

    @rule(data=st.data())
    def answer_late(self, data: st.DataObject) -> None:
        """A batch answers an item that has left it; taken if the item has no answer yet, refused if it has."""
        known = [
            (number, seq)
            for number, seqs in sorted(self.members.items())
            for seq in sorted(seqs)
            if self.store.items.has_member(self.run, number, [seq])
        ]
        if not known:
            return
        number, seq = data.draw(st.sampled_from(known))
        results, _ = self.store.results.ends(self.run)
        success = [Success(seq, results, 50)]
        if seq in self.ended:
            with pytest.raises(StaleStateError):
                self.store.results.record(
                    self.run, number, Lane.BATCH, success, [], at=self.now, results_end=results + 50
                )
        else:
            self.store.results.record(self.run, number, Lane.BATCH, success, [], at=self.now, results_end=results + 50)
            self.ended[seq] = ItemState.SUCCEEDED

    @rule(data=st.data())
    def close_batch(self, data: st.DataObject) -> None:
        """An ended batch is collected exactly when it holds no open item."""
        if batch := self.choose(data, BatchState.ENDED, BatchState.ABANDONED):
            if self.held(batch.number):
                with pytest.raises(StaleStateError):
                    self.store.batches.collected(self.run, batch.number, self.now)
            else:
                self.store.batches.collected(self.run, batch.number, self.now)

    @rule(data=st.data(), limit=st.integers(1, 4))
    def resubmit(self, data: st.DataObject, limit: int) -> None:
        """Pending items of one round go into a new, smaller batch."""
        pending = self.store.items.pending(self.run)
        if pending:
            round_ = data.draw(st.sampled_from(sorted({member.round for member in pending})))
            seqs = [member.seq for member in pending if member.round == round_][:limit]
            number = self.store.batches.next_number(self.run)
            add_waiting(self.store, self.run, number, seqs, round_)
            self.store.batches.assign(self.run, number, seqs, round_)

    @rule(data=st.data())
    def reopen(self, data: st.DataObject) -> None:
        """A person sends failed items once more."""
        failed = self.store.items.page(self.run, state=ItemState.FAILED)
        sendable = [item.seq for item in failed if item.offset is not None]
        if sendable:
            seqs = data.draw(st.lists(st.sampled_from(sendable), unique=True))
            self.store.results.reopen(self.run, seqs, self.now)
            for seq in seqs:
                del self.ended[seq]

    @rule()
    def restart(self) -> None:
        """The process ends and another one opens the file."""
        self.store.close()
        self.store = Store.open(self.path)
        self.now += timedelta(seconds=1)

    @precondition(lambda self: self.run)
    @rule()
    def finish(self) -> None:
        """The run is done exactly when every item has ended; it is opened again at once, to go on."""
        if len(self.ended) == self.planned:
            self.store.runs.move(self.run, RunState.DONE, needs=None, at=self.now)
            self.store.runs.move(self.run, RunState.OPEN, needs=None, at=self.now)
        else:
            with pytest.raises(StaleStateError):
                self.store.runs.move(self.run, RunState.DONE, needs=None, at=self.now)

    @precondition(lambda self: self.run)
    @invariant()
    def nothing_is_lost(self) -> None:
        """Every item is where the model says, and planned = succeeded + failed + open."""
        items = self.store.items.page(self.run)
        assert {item.seq: item.state for item in items if item.state != ItemState.OPEN} == self.ended
        run = self.store.runs.by_id(self.run)
        assert run is not None
        states = Counter(item.state for item in items)
        assert (run.planned, run.succeeded, run.failed, run.open) == (
            self.planned,
            states[ItemState.SUCCEEDED],
            states[ItemState.FAILED],
            states[ItemState.OPEN],
        )

    @precondition(lambda self: self.run)
    @invariant()
    def the_books_add_up(self) -> None:
        """Every counter is what counting again gives."""
        assert self.store.runs.verify(self.run) == []

    @precondition(lambda self: self.run)
    @invariant()
    def one_open_attempt_at_most(self) -> None:
        """An open item is pending or in exactly one batch, and no batch that could still be sent holds an ended one."""
        places = Counter(member.seq for member in self.store.items.pending(self.run))
        for batch in self.store.batches.all(self.run):
            places.update(self.held(batch.number))
        open_ = [item.seq for item in self.store.items.page(self.run, state=ItemState.OPEN)]
        assert places == Counter(open_)


class LongLife(Life):
    """The same, longer."""


Life.TestCase.settings = settings(max_examples=20, stateful_step_count=25)
TestLife = Life.TestCase
LongLife.TestCase.settings = settings(max_examples=200, stateful_step_count=50)
TestLongLife = pytest.mark.slow(pytest.mark.timeout(600)(LongLife.TestCase))
