"""Recording what became of attempts: items, batches, runs and counters in one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from datetime import datetime

from batchctl.core.errors import StaleStateError
from batchctl.core.model import MAY_ANSWER, Lane, Outcome
from batchctl.state.changing import MARKS, chunks, count_outcomes, expect, resize
from batchctl.state.connection import Database
from batchctl.state.rows import ERROR_MESSAGE_CHARS, Failure, Success, Totals, stamp


class Results:
    """Outcomes of attempts, in both lanes."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def record(
        self,
        run_id: int,
        number: int | None,
        lane: Lane,
        successes: Sequence[Success],
        failures: Sequence[Failure],
        *,
        at: datetime,
        results_end: int | None = None,
        errors_end: int | None = None,
        totals: Totals | None = None,
    ) -> None:
        """Record a chunk of outcomes and every counter they change, in one transaction.

        A success of a batch settles its item also where the item has moved on (a late answer of an older attempt).

        Args:
            number: the batch that answered; None in the sync lane.
            successes, failures: of items that are open; the caller has dropped repetitions.
            results_end, errors_end: new recorded ends of the two files, in bytes; None where nothing was appended.
            totals: tokens and cost that this chunk adds.

        Raises:
            StaleStateError: an item was not open, or not where the answer says; nothing is changed.
        """
        with self._db.transaction():
            settled = self._succeed(run_id, number, successes, at)
            failed = self._fail(run_id, number, lane, failures, stamp(at))
            outcomes = Counter(failure.outcome for failure in failures)
            outcomes[Outcome.SUCCEEDED] += settled
            count_outcomes(self._db, run_id, number, lane, outcomes)
            if number is not None:
                resize(self._db, run_id, number)
            changed = self._db.change(
                "UPDATE runs SET succeeded = succeeded + ?1, failed = failed + ?2, input_tokens = input_tokens + ?3,"
                " output_tokens = output_tokens + ?4, cached_input_tokens = cached_input_tokens + ?5,"
                " cost_usd = cost_usd + ?6, unpriced = unpriced + ?7, results_bytes = coalesce(?8, results_bytes),"
                " errors_bytes = coalesce(?9, errors_bytes), updated_at = ?10 WHERE id = ?11"
                " AND coalesce(?8 >= results_bytes, 1) AND coalesce(?9 >= errors_bytes, 1)",
                (settled, failed, *astuple(totals or Totals()), results_end, errors_end, stamp(at), run_id),
            )
            expect(changed, 1, f"run {run_id} is missing, or a file would end before its recorded end")

    def reopen(self, run_id: int, seqs: Sequence[int], at: datetime) -> None:
        """Put failed items back to pending, because a person asks to send them once more; their round stays.

        Raises:
            StaleStateError: an item is not failed, or has no request (a bad record).
        """
        with self._db.transaction(durable=True):
            changed = self._db.change_many(
                "UPDATE items SET state = 'open', outcome = NULL, batch = NULL, out_offset = NULL, out_length = NULL"
                " WHERE run_id = ? AND seq = ? AND state = 'failed' AND offset IS NOT NULL",
                ((run_id, seq) for seq in seqs),
            )
            expect(changed, len(seqs), f"failed items of run {run_id}")
            changed = self._db.change(
                "UPDATE runs SET failed = failed - ?, updated_at = ? WHERE id = ?", (changed, stamp(at), run_id)
            )
            expect(changed, 1, f"run {run_id}")

    def remap(self, run_id: int, offsets: Mapping[int, tuple[int, int]]) -> None:
        """Set where the final lines of settled items are, by seq as (offset, length), after a file was rewritten.

        Raises:
            StaleStateError: an item is not settled.
        """
        with self._db.transaction():
            changed = self._db.change_many(
                "UPDATE items SET out_offset = ?, out_length = ? WHERE run_id = ? AND seq = ? AND state <> 'open'",
                ((offset, length, run_id, seq) for seq, (offset, length) in offsets.items()),
            )
            expect(changed, len(offsets), f"settled items of run {run_id}")

    def misplace(self, run_id: int, seqs: Sequence[int]) -> None:
        """Write down that the final lines of settled items are in no file."""
        with self._db.transaction():
            self._db.change_many(
                "UPDATE items SET out_offset = NULL, out_length = NULL WHERE run_id = ? AND seq = ?"
                " AND state <> 'open'",
                ((run_id, seq) for seq in seqs),
            )

    def ends(self, run_id: int) -> tuple[int, int]:
        """The recorded ends of results.jsonl and errors.jsonl, in bytes."""
        row = self._db.row("SELECT results_bytes, errors_bytes FROM runs WHERE id = ?", (run_id,))
        if row is None:
            raise StaleStateError(f"there is no run {run_id}")
        return row[0], row[1]

    def set_ends(self, run_id: int, results_bytes: int, errors_bytes: int) -> None:
        """Set the recorded ends, after a repair or a rewrite."""
        with self._db.transaction(durable=True):
            changed = self._db.change(
                "UPDATE runs SET results_bytes = ?, errors_bytes = ? WHERE id = ?",
                (results_bytes, errors_bytes, run_id),
            )
            expect(changed, 1, f"run {run_id}")

    def join(self, run_id: int, number: int, seqs: Sequence[int], *, at: datetime) -> set[int]:
        """Give open items to a batch that answered them while they were with another, or with none.

        A send they wait on now keeps a membership row.

        Returns:
            The items that were not in this batch, and are now.
        """
        sql = (
            "SELECT seq, batch FROM items WHERE run_id = ? AND state = 'open' AND batch IS NOT ?"  # noqa: S608
            f" AND seq IN ({MARKS})"
        )
        moved = {seq: batch for part in chunks(seqs) for seq, batch in self._db.rows(sql, (run_id, number, *part))}
        sent = {
            row[0]
            for row in self._db.rows("SELECT number, state FROM batches WHERE run_id = ?", (run_id,))
            if row[1] in MAY_ANSWER
        }
        with self._db.transaction():
            self._db.change_many(
                "INSERT INTO attempts (run_id, seq, number, lane, batch, round, at)"
                " SELECT run_id, seq, attempts + 1, 'batch', batch, round, ? FROM items WHERE run_id = ? AND seq = ?",
                ((stamp(at), run_id, seq) for seq, left in moved.items() if left in sent),
            )
            changed = self._db.change_many(
                "UPDATE items SET batch = ?, attempts = attempts + ?"
                " WHERE run_id = ? AND seq = ? AND state = 'open' AND batch IS ?",
                ((number, int(left in sent), run_id, seq, left) for seq, left in moved.items()),
            )
            expect(changed, len(moved), f"items of run {run_id} that batch {number} answered")
            for left in set(moved.values()) - {None}:
                resize(self._db, run_id, left)
        return set(moved)

    def _succeed(self, run_id: int, number: int | None, successes: Sequence[Success], at: datetime) -> int:
        changed = self._mark_succeeded(run_id, number, successes)
        if changed != len(successes) and number is not None:
            seqs = self.join(run_id, number, [done.seq for done in successes], at=at)
            late = [done for done in successes if done.seq in seqs]
            counted = self._counted(run_id, number, late)
            changed += self._mark_succeeded(run_id, number, [done for done in late if done.seq not in counted])
            changed += self._mark_succeeded(run_id, number, [done for done in late if done.seq in counted], attempts=0)
            self._db.change(
                "UPDATE batches SET late = late + ? WHERE run_id = ? AND number = ?", (len(late), run_id, number)
            )
        expect(changed, len(successes), f"answers for items of run {run_id}")
        return changed

    def _counted(self, run_id: int, number: int, late: Sequence[Success]) -> set[int]:
        """Those whose attempt in this batch was counted when they left it."""
        sql = f"SELECT seq FROM attempts WHERE run_id = ? AND batch = ? AND seq IN ({MARKS})"  # noqa: S608
        parts = chunks([done.seq for done in late])
        return {row[0] for part in parts for row in self._db.rows(sql, (run_id, number, *part))}

    def _mark_succeeded(
        self, run_id: int, number: int | None, successes: Sequence[Success], *, attempts: int = 1
    ) -> int:
        return self._db.change_many(
            "UPDATE items SET state = 'succeeded', outcome = 'succeeded', attempts = attempts + ?, out_offset = ?,"
            " out_length = ? WHERE run_id = ? AND seq = ? AND state = 'open' AND batch IS ?",
            ((attempts, done.out_offset, done.out_length, run_id, done.seq, number) for done in successes),
        )

    def _fail(self, run_id: int, number: int | None, lane: Lane, failures: Sequence[Failure], now: str) -> int:
        """Write the attempts and move the items; returns how many failed for good."""
        written = self._db.change_many(
            "INSERT OR IGNORE INTO attempts (run_id, seq, number, lane, batch, round, outcome, error_type, error_code,"
            " error_message, at) SELECT run_id, seq, attempts + 1, ?, batch, round, ?, ?, ?, ?, ? FROM items"
            " WHERE run_id = ? AND seq = ? AND state = 'open' AND batch IS ?",
            (
                (
                    lane,
                    failure.outcome,
                    failure.error_type,
                    failure.error_code,
                    None if failure.message is None else failure.message[:ERROR_MESSAGE_CHARS],
                    now,
                    run_id,
                    failure.seq,
                    number,
                )
                for failure in failures
            ),
        )
        final = [failure for failure in failures if failure.final]
        changed = self._db.change_many(
            "UPDATE items SET state = 'failed', outcome = ?, attempts = attempts + 1, out_offset = ?, out_length = ?"
            " WHERE run_id = ? AND seq = ? AND state = 'open' AND batch IS ?",
            (
                (failure.outcome, failure.out_offset, failure.out_length, run_id, failure.seq, number)
                for failure in final
            ),
        )
        changed += self._db.change_many(
            "UPDATE items SET batch = NULL, outcome = ?, attempts = attempts + 1, round = round + ?"
            " WHERE run_id = ? AND seq = ? AND state = 'open' AND batch IS ?",
            (
                (failure.outcome, int(failure.spends_round), run_id, failure.seq, number)
                for failure in failures
                if not failure.final
            ),
        )
        expect(min(written, changed), len(failures), f"failed attempts of items of run {run_id}")
        return len(final)
