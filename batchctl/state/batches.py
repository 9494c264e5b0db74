"""Sending, settling and following batches, each step one conditional update."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from batchctl.core.errors import InputError, StaleStateError
from batchctl.core.model import FOLLOWED, IN_DOUBT, BatchState, CancelCause
from batchctl.state.batch_recalling import BatchRecalling
from batchctl.state.changing import change_batch, expect, holdings, leave, quoted, release, resize
from batchctl.state.rows import stamp, stamp_or_none, to_json


class Batches(BatchRecalling):
    """Batches of all runs; every method takes the run's id and the batch's number inside it."""

    def looked(self, run_id: int, number: int, *, next_check_at: datetime | None = None) -> int:
        """Count one more look at a batch that is not where it should be; returns how many there were.

        Looks start anew with each step forward: they count lists without a trace of a batch being sent, or result
        files without all of an ended batch's requests.
        """
        with self._db.transaction():
            changed = self._db.change(
                "UPDATE batches SET looks = looks + 1, check_failures = 0, next_check_at = coalesce(?, next_check_at)"
                " WHERE run_id = ? AND number = ?",
                (stamp_or_none(next_check_at), run_id, number),
            )
            expect(changed, 1, f"batch {number} of run {run_id}")
            row = self._db.row("SELECT looks FROM batches WHERE run_id = ? AND number = ?", (run_id, number))
        return 0 if row is None else int(row[0])

    def look_later(
        self, run_id: int, number: int, next_check_at: datetime, *, anew: bool = False, failures: int = 0
    ) -> None:
        """Put off the next look at a batch, because this one failed; with `anew`, looks are counted from there.

        Args:
            failures: looks in a row at which the provider's lists could not be read.
        """
        with self._db.transaction():
            changed = self._db.change(
                "UPDATE batches SET next_check_at = ?1, looks = CASE WHEN ?2 THEN 0 ELSE looks END,"
                " check_failures = ?3 WHERE run_id = ?4 AND number = ?5",
                (stamp(next_check_at), anew, failures, run_id, number),
            )
            expect(changed, 1, f"batch {number} of run {run_id}")

    def confirm(self, run_id: int, number: int) -> None:
        """Write down, durably, that a batch found by count and time only is ours: its results hold our ids."""
        with self._db.transaction(durable=True):
            changed = self._db.change(
                "UPDATE batches SET certain = 1 WHERE run_id = ? AND number = ? AND certain = 0", (run_id, number)
            )
            expect(changed, 1, f"batch {number} of run {run_id} to be confirmed")

    def abandon(self, run_id: int, number: int, at: datetime) -> None:
        """Give up waiting for a batch, durably: its items are pending again, and a late answer is still taken."""
        with self._db.transaction(durable=True):
            leave(self._db, run_id, number, stamp(at))
            self._move(run_id, number, BatchState.ABANDONED)

    def intend(
        self,
        run_id: int,
        number: int,
        key: str,
        at: datetime,
        *,
        address: str | None = None,
        key_hint: str | None = None,
        fence: str | None = None,
    ) -> None:
        """Write down, durably, that a waiting batch is about to be sent.

        Args:
            address: where to; None where that is not known.
            key_hint: tells one API key from another, and nothing else about it.
            fence: the newest batch listed before, see `BatchProvider.fence`.

        Raises:
            StaleStateError: it is not waiting, or the key was used before.
        """
        with self._db.transaction(durable=True):
            try:
                self._move(
                    run_id,
                    number,
                    BatchState.SUBMITTING,
                    key=key,
                    intent_at=stamp(at),
                    address=address,
                    key_hint=key_hint,
                    fence=fence,
                    not_before=None,
                    faults="[]",
                )
            except sqlite3.IntegrityError as error:
                raise StaleStateError(f"intent key {key} was used before") from error
            self._db.change("UPDATE batches SET sends = sends + 1 WHERE run_id = ? AND number = ?", (run_id, number))

    def set_file(self, run_id: int, number: int, file_id: str | None) -> None:
        """Write down, durably, the input file of a batch being sent, or that it is gone.

        Raises:
            StaleStateError: the batch is past its create.
        """
        states = quoted(IN_DOUBT | {BatchState.WAITING})
        with self._db.transaction(durable=True):
            changed = self._db.change(
                f"UPDATE batches SET file_id = ? WHERE run_id = ? AND number = ? AND state IN ({states})",  # noqa: S608
                (file_id, run_id, number),
            )
            expect(changed, 1, f"file of batch {number} of run {run_id}")

    def file_deleted(self, run_id: int, number: int, file_id: str) -> None:
        """Forget an input file that is gone at the provider."""
        with self._db.transaction():
            self._db.change(
                "UPDATE batches SET file_id = NULL WHERE run_id = ? AND number = ? AND file_id = ?",
                (run_id, number, file_id),
            )

    def created(
        self,
        run_id: int,
        number: int,
        *,
        batch_id: str,
        status: str,
        expires_at: datetime | None,
        certain: bool,
        at: datetime,
        next_check_at: datetime,
    ) -> None:
        """Write down, durably, the provider's id of a batch that was being sent.

        Args:
            certain: false where settling could compare only count and time; the results must confirm it.

        Raises:
            InputError: another batch has this id already.
            StaleStateError: the batch was not being sent.
        """
        with self._db.transaction(durable=True):
            owner = self._db.row(
                "SELECT runs.name, number FROM batches JOIN runs ON runs.id = run_id WHERE batch_id = ?", (batch_id,)
            )
            if owner is not None:
                raise InputError(f"batch {batch_id} belongs to batch {owner[1]} of run {owner[0]!r} already")
            self._move(
                run_id,
                number,
                BatchState.IN_PROGRESS,
                batch_id=batch_id,
                provider_status=status,
                provider_counts="{}",
                expires_at=stamp_or_none(expires_at),
                certain=int(certain),
                submitted_at=stamp(at),
                next_check_at=stamp(next_check_at),
                check_failures=0,
                looks=0,
                lost=0,
                faults="[]",
            )

    def back_to_waiting(
        self,
        run_id: int,
        number: int,
        *,
        not_before: datetime | None,
        refusals: int,
        lost: int = 0,
        keep_file: bool = False,
        faults: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Put back, durably, a batch that is surely not at the provider, or was refused whole for lack of room.

        Args:
            not_before: when it may be sent again.
            refusals: queue-full refusals so far.
            lost: creates in a row that never arrived; any answer of the provider ends the row.
            keep_file: its uploaded input file can be used again; dropped all the same where an item has left the batch.
            faults: why it waits, where a person can do something about it.
        """
        with self._db.transaction(durable=True):
            self._move(
                run_id,
                number,
                BatchState.WAITING,
                **({} if keep_file else {"file_id": None}),
                **dict.fromkeys(
                    (
                        "key",
                        "intent_at",
                        "batch_id",
                        "provider_status",
                        "submitted_at",
                        "expires_at",
                        "next_check_at",
                        "stalls_at",
                    )
                ),
                provider_counts="{}",
                certain=1,
                check_failures=0,
                looks=0,
                not_before=stamp_or_none(not_before),
                refusals=refusals,
                lost=lost,
                faults=to_json([dict(fault) for fault in faults]),
            )
            resize(self._db, run_id, number)

    def unknown(self, run_id: int, number: int, reason: str) -> None:
        """Write down, durably, that settling cannot tell; an id that was only guessed is given up."""
        with self._db.transaction(durable=True):
            self._move(
                run_id,
                number,
                BatchState.UNKNOWN,
                batch_id=None,
                certain=1,
                looks=0,
                faults=to_json([{"code": "unknown", "message": reason}]),
            )

    def checked(
        self,
        run_id: int,
        number: int,
        *,
        status: str | None,
        counts: Mapping[str, int] | None,
        next_check_at: datetime | None,
        failures: int = 0,
        expires_at: datetime | None = None,
        stalls_at: datetime | None = None,
    ) -> None:
        """Write down one look at a batch; None keeps the status, counts or times as they are.

        Args:
            failures: looks that failed in a row.

        Raises:
            StaleStateError: the batch is not with the provider.
        """
        with self._db.transaction():
            changed = self._db.change(
                "UPDATE batches SET provider_status = coalesce(?, provider_status),"  # noqa: S608  # our own states
                " provider_counts = coalesce(?, provider_counts), expires_at = coalesce(?, expires_at),"
                " stalls_at = coalesce(?, stalls_at), next_check_at = ?, check_failures = ?"
                f" WHERE run_id = ? AND number = ? AND state IN ({quoted(FOLLOWED)})",
                (
                    status,
                    None if counts is None else to_json(dict(counts)),
                    stamp_or_none(expires_at),
                    stamp_or_none(stalls_at),
                    stamp_or_none(next_check_at),
                    failures,
                    run_id,
                    number,
                ),
            )
            expect(changed, 1, f"check of batch {number} of run {run_id}")

    def canceling(self, run_id: int, number: int, cause: CancelCause) -> None:
        """Write down, durably, that a running batch is to be canceled, and why."""
        with self._db.transaction(durable=True):
            self._move(run_id, number, BatchState.CANCELING, cancel_cause=cause)

    def ended(self, run_id: int, number: int, at: datetime) -> None:
        """Write down, durably, that the provider is finished with a batch."""
        with self._db.transaction(durable=True):
            self._move(run_id, number, BatchState.ENDED, ended_at=stamp(at), looks=0)

    def collected(self, run_id: int, number: int, at: datetime, *, quarantined: int = 0) -> None:
        """Write down, durably, that all a batch answered is recorded.

        Args:
            quarantined: lines of its results that fit no item of it.

        Raises:
            StaleStateError: open items still wait for it.
        """
        with self._db.transaction(durable=True):
            self._move(run_id, number, BatchState.COLLECTED, collected_at=stamp(at), looks=0, quarantined=quarantined)
            batch = self.get(run_id, number)
            assert batch is not None  # just moved
            held, _, _ = holdings(self._db, run_id, number, batch.first_seq, batch.last_seq)
            expect(held, 0, f"open items in batch {number} of run {run_id}, which would be collected")

    def reject(self, run_id: int, number: int, faults: Sequence[Mapping[str, Any]], at: datetime) -> None:
        """Write down, durably, that the provider refused a batch whole: its items are pending again, no round spent.

        Items that are at fault themselves are failed first, through `results.record`.
        """
        with self._db.transaction(durable=True):
            self._move(
                run_id,
                number,
                BatchState.REJECTED,
                ended_at=stamp(at),
                next_check_at=None,
                faults=to_json([dict(fault) for fault in faults]),
            )
            release(self._db, run_id, number)

    def _move(self, run_id: int, number: int, target: BatchState, **columns: Any) -> None:
        change_batch(self._db, run_id, number, target, columns)
