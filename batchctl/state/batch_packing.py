"""Packing items into waiting batches, and taking waiting batches apart."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from batchctl.core.errors import StaleStateError
from batchctl.core.model import BatchState
from batchctl.state.batch_reading import BatchReading
from batchctl.state.changing import change_batch, expect, holdings, release
from batchctl.state.rows import stamp_or_none


class BatchPacking(BatchReading):
    """Steps of a batch before it is sent."""

    def next_number(self, run_id: int) -> int:
        """The number after the run's last batch; the first is 1."""
        rows = self._db.rows("SELECT coalesce(max(number), 0) + 1 FROM batches WHERE run_id = ?", (run_id,))
        return int(rows[0][0])

    def add_waiting(
        self,
        run_id: int,
        number: int,
        round: int,  # noqa: A002  # the charter's word
        requests: int,
        size: int,
        tokens: int,
        first_seq: int,
        last_seq: int,
    ) -> None:
        """Add a packed batch.

        Args:
            size: bytes of the lines, each with its newline.
            tokens: estimated input tokens.

        Raises:
            StaleStateError: the number is taken.
        """
        with self._db.transaction():
            try:
                self._db.change(
                    "INSERT INTO batches (run_id, number, round, state, requests, size, tokens, first_seq, last_seq)"
                    " VALUES (?, ?, ?, 'waiting', ?, ?, ?, ?, ?)",
                    (run_id, number, round, requests, size, tokens, first_seq, last_seq),
                )
            except sqlite3.IntegrityError as error:
                raise StaleStateError(f"run {run_id} has a batch {number} already, or does not exist") from error

    def assign(self, run_id: int, number: int, seqs: Iterable[int], round: int) -> None:  # noqa: A002
        """Put pending items of one round into a waiting batch of that round.

        Raises:
            StaleStateError: an item is not pending, of another round or outside the batch's range of seq, or the
                batch is not waiting; nothing is changed.
        """
        members = list(seqs)
        with self._db.transaction():
            row = self._db.row(
                "SELECT first_seq, last_seq FROM batches"
                " WHERE run_id = ? AND number = ? AND state = 'waiting' AND round = ?",
                (run_id, number, round),
            )
            if row is None:
                raise StaleStateError(f"run {run_id} has no waiting batch {number} of round {round}")
            changed = self._db.change_many(
                "UPDATE items SET batch = ? WHERE run_id = ? AND seq = ? AND seq BETWEEN ? AND ?"
                " AND state = 'open' AND batch IS NULL AND round = ?",
                ((number, run_id, seq, *row, round) for seq in members),
            )
            expect(changed, len(members), f"items for batch {number} of run {run_id}")

    def split(self, run_id: int, number: int, cut_seq: int) -> tuple[int, int]:
        """Withdraw a batch that was not accepted and put its items into two new ones that wait as it did, durably.

        Args:
            cut_seq: the first item of the second half.

        Returns:
            The numbers of the two.

        Raises:
            StaleStateError: the batch may be at the provider, or one half would be empty.
        """
        with self._db.transaction(durable=True):
            old = self.get(run_id, number)
            if old is None:
                raise StaleStateError(f"run {run_id} has no batch {number}")
            if old.state == BatchState.SUBMITTING:
                change_batch(self._db, run_id, number, BatchState.WAITING, {})
            change_batch(self._db, run_id, number, BatchState.WITHDRAWN, {})
            first = self.next_number(run_id)
            for half, low, high in ((first, old.first_seq, cut_seq - 1), (first + 1, cut_seq, old.last_seq)):
                requests, size, tokens = holdings(self._db, run_id, number, low, high)
                if not requests:
                    raise StaleStateError(f"batch {number} of run {run_id} cannot be cut at item {cut_seq}")
                self.add_waiting(run_id, half, old.round, requests, size, tokens, low, high)
                self._db.change(
                    "UPDATE batches SET refusals = ?, not_before = ? WHERE run_id = ? AND number = ?",
                    (old.refusals, stamp_or_none(old.not_before), run_id, half),
                )
                changed = self._db.change(
                    "UPDATE items SET batch = ? WHERE run_id = ? AND seq BETWEEN ? AND ? AND batch = ?"
                    " AND state = 'open'",
                    (half, run_id, low, high, number),
                )
                expect(changed, requests, f"items of batch {number} of run {run_id}")
        return first, first + 1

    def withdraw(self, run_id: int, number: int) -> None:
        """Take a waiting batch apart, durably: its items are pending again."""
        with self._db.transaction(durable=True):
            change_batch(self._db, run_id, number, BatchState.WITHDRAWN, {})
            release(self._db, run_id, number)
