"""Batches that an older copy of the state file does not know as sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from batchctl.core.model import IN_DOUBT, BatchState
from batchctl.state.batch_packing import BatchPacking
from batchctl.state.changing import expect, quoted
from batchctl.state.rows import stamp


class BatchRecalling(BatchPacking):
    """What puts them into doubt, so that settling finds them; the base of `Batches`."""

    def recall(
        self,
        run_id: int,
        number: int,
        *,
        key: str,
        at: datetime,
        sends: int,
        address: str | None = None,
        key_hint: str | None = None,
        fence: str | None = None,
    ) -> None:
        """Put a batch in doubt, durably, that was sent (for the `sends`-th time) after this state file was copied."""
        states = quoted(IN_DOUBT | {BatchState.WAITING})
        with self._db.transaction(durable=True):
            changed = self._db.change(
                "UPDATE batches SET state = 'submitting', key = ?, intent_at = ?, sends = ?, looks = 0,"  # noqa: S608
                " address = ?, key_hint = ?, fence = ?, not_before = NULL, next_check_at = NULL"
                f" WHERE run_id = ? AND number = ? AND state IN ({states})",
                (key, stamp(at), sends, address, key_hint, fence, run_id, number),
            )
            expect(changed, 1, f"batch {number} of run {run_id} to be recalled")

    def sendings(self, run_id: int) -> dict[int, int]:
        """How often each batch was about to be sent, by number."""
        return dict(self._db.rows("SELECT number, sends FROM batches WHERE run_id = ?", (run_id,)))

    def also_sent(self, run_id: int, number: int, seqs: Sequence[int], at: datetime) -> None:
        """Write down that open items were sent in this batch too, though they stand elsewhere: its answers count."""
        with self._db.transaction():
            self._db.change_many(
                "INSERT INTO attempts (run_id, seq, number, lane, batch, round, at)"
                " SELECT run_id, seq, attempts + 1, 'batch', ?, round, ? FROM items"
                " WHERE run_id = ? AND seq = ? AND state = 'open'",
                ((number, stamp(at), run_id, seq) for seq in seqs),
            )
            self._db.change_many(
                "UPDATE items SET attempts = attempts + 1 WHERE run_id = ? AND seq = ? AND state = 'open'",
                ((run_id, seq) for seq in seqs),
            )
