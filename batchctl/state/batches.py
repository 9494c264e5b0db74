"""The batches table: packing, sending, settling and following batches, each step one conditional update."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from batchctl.core.errors import InputError, StaleStateError
from batchctl.core.model import BatchState
from batchctl.state.changing import change_batch, expect, holdings, leave, quoted, release, resize
from batchctl.state.connection import Database
from batchctl.state.rows import BATCH_COLUMNS, BATCH_TIMES, BatchRow, Load, batch_row, stamp, stamp_or_none, to_json

FOLLOWED = (BatchState.IN_PROGRESS, BatchState.CANCELING, BatchState.ABANDONED)
"""Batches whose status is asked for."""

ENQUEUED = (BatchState.SUBMITTING, BatchState.UNKNOWN, BatchState.IN_PROGRESS, BatchState.CANCELING)
"""Batches that count against the provider's queue limits."""

MOVABLE = frozenset(BATCH_TIMES) | {
    "provider_status",
    "provider_counts",
    "faults",
    "check_failures",
    "cancel_cause",
    "certain",
    "file_id",
}
"""Columns a move may set besides the state."""


class Batches:
    """Batches of all runs; every method takes the run's id and the batch's number inside it."""

    def __init__(self, database: Database) -> None:
        self._db = database

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
        model: str | None,
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
                    "INSERT INTO batches (run_id, number, round, state, requests, size, tokens, first_seq, last_seq,"
                    " model) VALUES (?, ?, ?, 'waiting', ?, ?, ?, ?, ?, ?)",
                    (run_id, number, round, requests, size, tokens, first_seq, last_seq, model),
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

    def all(self, run_id: int) -> list[BatchRow]:
        """Every batch of a run, by number."""
        return self._where("run_id = ?", run_id)

    def get(self, run_id: int, number: int) -> BatchRow | None:
        """One batch."""
        return next(iter(self._where("run_id = ? AND number = ?", run_id, number)), None)

    def in_state(self, run_id: int, *states: BatchState) -> list[BatchRow]:
        """The batches in one of these states, by number."""
        return self._where(f"run_id = ? AND state IN ({quoted(states)})", run_id)

    def due(self, run_id: int, now: datetime) -> list[BatchRow]:
        """The batches whose status is to be asked for by now."""
        return self._where(f"run_id = ? AND state IN ({quoted(FOLLOWED)}) AND next_check_at <= ?", run_id, stamp(now))

    def known_ids(self, run_id: int) -> set[str]:
        """The batch ids that cannot be the one a run looks for: its own, and those other runs are certain of.

        What another run only guessed stays a candidate, so that a wrong guess there never counts as absent here.
        """
        rows = self._db.rows(
            "SELECT batch_id FROM batches WHERE batch_id IS NOT NULL AND (certain = 1 OR run_id = ?)", (run_id,)
        )
        return {batch_id for (batch_id,) in rows}

    def owner(self, batch_id: str) -> str | None:
        """The name of the run that has this batch, if one has."""
        row = self._db.row("SELECT name FROM runs JOIN batches ON run_id = runs.id WHERE batch_id = ?", (batch_id,))
        return None if row is None else str(row[0])

    def open_load(self, run_id: int) -> Load:
        """What stands in the provider's queue, or may."""
        row = self._db.row(
            "SELECT count(*), coalesce(sum(requests), 0), coalesce(sum(tokens), 0) FROM batches"  # noqa: S608
            f" WHERE run_id = ? AND state IN ({quoted(ENQUEUED)})",
            (run_id,),
        )
        assert row is not None  # an aggregate always has a row
        return Load(*row)

    def looked(self, run_id: int, number: int, *, next_check_at: datetime | None = None) -> int:
        """Count one more look at a batch that is not where it should be; returns how many there were.

        Looks start anew with each step forward: they count lists without a trace of a batch being sent, or result
        files without all of an ended batch's requests.
        """
        with self._db.transaction():
            changed = self._db.change(
                "UPDATE batches SET looks = looks + 1, next_check_at = coalesce(?, next_check_at)"
                " WHERE run_id = ? AND number = ?",
                (stamp_or_none(next_check_at), run_id, number),
            )
            expect(changed, 1, f"batch {number} of run {run_id}")
            row = self._db.row("SELECT looks FROM batches WHERE run_id = ? AND number = ?", (run_id, number))
        return 0 if row is None else int(row[0])

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

    def intend(self, run_id: int, number: int, key: str, at: datetime) -> None:
        """Write down, durably, that a waiting batch is about to be sent.

        Raises:
            StaleStateError: it is not waiting, or the key was used before.
        """
        with self._db.transaction(durable=True):
            try:
                self._move(
                    run_id, number, BatchState.SUBMITTING, key=key, intent_at=stamp(at), not_before=None, faults="[]"
                )
            except sqlite3.IntegrityError as error:
                raise StaleStateError(f"intent key {key} was used before") from error

    def set_file(self, run_id: int, number: int, file_id: str | None) -> None:
        """Write down, durably, the input file of a batch being sent, or that it is gone.

        Raises:
            StaleStateError: the batch is past its create.
        """
        states = quoted((BatchState.WAITING, BatchState.SUBMITTING, BatchState.UNKNOWN))
        with self._db.transaction(durable=True):
            changed = self._db.change(
                f"UPDATE batches SET file_id = ? WHERE run_id = ? AND number = ? AND state IN ({states})",  # noqa: S608
                (file_id, run_id, number),
            )
            expect(changed, 1, f"file of batch {number} of run {run_id}")

    def created(
        self,
        run_id: int,
        number: int,
        *,
        batch_id: str,
        status: str,
        created_at: datetime | None,
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
                created_at=stamp_or_none(created_at),
                expires_at=stamp_or_none(expires_at),
                certain=int(certain),
                submitted_at=stamp(at),
                next_check_at=stamp(next_check_at),
                check_failures=0,
                looks=0,
                faults="[]",
            )

    def back_to_waiting(
        self,
        run_id: int,
        number: int,
        *,
        not_before: datetime | None,
        refusals: int,
        at: datetime,
        keep_file: bool = False,
    ) -> None:
        """Put back, durably, a batch that is surely not at the provider, or was refused whole for lack of room.

        Args:
            not_before: when it may be sent again.
            refusals: queue-full refusals so far.
            keep_file: its uploaded input file can be used again; dropped all the same where an item has left the batch.
        """
        with self._db.transaction(durable=True):
            before = self.get(run_id, number)
            self._move(
                run_id,
                number,
                BatchState.WAITING,
                **dict.fromkeys(
                    (
                        "key",
                        "intent_at",
                        "batch_id",
                        "provider_status",
                        "submitted_at",
                        "created_at",
                        "expires_at",
                        "next_check_at",
                    )
                ),
                provider_counts="{}",
                certain=1,
                checked_at=stamp(at),
                check_failures=0,
                looks=0,
                not_before=stamp_or_none(not_before),
                refusals=refusals,
            )
            resize(self._db, run_id, number)
            after = self.get(run_id, number)
            if not keep_file or before is None or after is None or after.requests != before.requests:
                self._db.change("UPDATE batches SET file_id = NULL WHERE run_id = ? AND number = ?", (run_id, number))

    def unknown(self, run_id: int, number: int, reason: str, at: datetime) -> None:
        """Write down, durably, that settling cannot tell; an id that was only guessed is given up."""
        with self._db.transaction(durable=True):
            self._move(
                run_id,
                number,
                BatchState.UNKNOWN,
                batch_id=None,
                certain=1,
                checked_at=stamp(at),
                faults=to_json([{"code": "unknown", "message": reason}]),
            )

    def checked(
        self,
        run_id: int,
        number: int,
        *,
        status: str | None,
        counts: Mapping[str, int] | None,
        at: datetime,
        next_check_at: datetime | None,
        failures: int = 0,
        expires_at: datetime | None = None,
    ) -> None:
        """Write down one look at a batch; None keeps the status, counts or deadline as they are.

        Args:
            failures: looks that failed in a row.

        Raises:
            StaleStateError: the batch is not with the provider.
        """
        states = quoted((*FOLLOWED, BatchState.ENDED))
        with self._db.transaction():
            changed = self._db.change(
                "UPDATE batches SET provider_status = coalesce(?, provider_status),"  # noqa: S608  # our own states
                " provider_counts = coalesce(?, provider_counts), expires_at = coalesce(?, expires_at),"
                " checked_at = ?, next_check_at = ?, check_failures = ?"
                f" WHERE run_id = ? AND number = ? AND state IN ({states})",
                (
                    status,
                    None if counts is None else to_json(dict(counts)),
                    stamp_or_none(expires_at),
                    stamp(at),
                    stamp_or_none(next_check_at),
                    failures,
                    run_id,
                    number,
                ),
            )
            expect(changed, 1, f"check of batch {number} of run {run_id}")

    def move(self, run_id: int, number: int, target: BatchState, at: datetime, **columns: Any) -> None:
        """Move a batch on, durably, setting other columns too (datetimes, mappings and lists are converted).

        The steps that do more have methods of their own: `intend`, `created`, `back_to_waiting`, `unknown`,
        `withdraw`, `reject`.

        Raises:
            StaleStateError: the model does not allow it, or open items still wait for a batch that would be done.
        """
        if target not in (BatchState.CANCELING, BatchState.ENDED, BatchState.COLLECTED, BatchState.ABANDONED):
            raise ValueError(f"a move to {target} has its own method")
        if not columns.keys() <= MOVABLE:
            raise ValueError(f"columns that a move may not set: {sorted(columns.keys() - MOVABLE)}")
        values = {name: _plain(value) for name, value in columns.items()}
        times = {BatchState.ENDED: "ended_at", BatchState.COLLECTED: "collected_at"}
        if target in times:
            values.setdefault(times[target], stamp(at))
            values["looks"] = 0
        with self._db.transaction(durable=True):
            self._move(run_id, number, target, **values)
            if target in (BatchState.COLLECTED, BatchState.ABANDONED):
                batch = self.get(run_id, number)
                assert batch is not None  # just moved
                held, _, _ = holdings(self._db, run_id, number, batch.first_seq, batch.last_seq)
                expect(held, 0, f"open items in batch {number} of run {run_id}, which would be {target}")

    def split(self, run_id: int, number: int, cut_seq: int, at: datetime) -> tuple[int, int]:
        """Withdraw a batch that was not accepted and put its items into two new waiting ones, durably.

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
                self.back_to_waiting(run_id, number, not_before=None, refusals=old.refusals, at=at)
            self._move(run_id, number, BatchState.WITHDRAWN, checked_at=stamp(at))
            first = self.next_number(run_id)
            for half, low, high in ((first, old.first_seq, cut_seq - 1), (first + 1, cut_seq, old.last_seq)):
                requests, size, tokens = holdings(self._db, run_id, number, low, high)
                if not requests:
                    raise StaleStateError(f"batch {number} of run {run_id} cannot be cut at item {cut_seq}")
                self.add_waiting(run_id, half, old.round, requests, size, tokens, low, high, old.model)
                changed = self._db.change(
                    "UPDATE items SET batch = ? WHERE run_id = ? AND seq BETWEEN ? AND ? AND batch = ?"
                    " AND state = 'open'",
                    (half, run_id, low, high, number),
                )
                expect(changed, requests, f"items of batch {number} of run {run_id}")
        return first, first + 1

    def withdraw(self, run_id: int, number: int, at: datetime) -> None:
        """Take a waiting batch apart, durably: its items are pending again."""
        with self._db.transaction(durable=True):
            self._move(run_id, number, BatchState.WITHDRAWN, checked_at=stamp(at))
            release(self._db, run_id, number)

    def reject(self, run_id: int, number: int, faults: Sequence[Mapping[str, Any]], at: datetime) -> None:
        """Write down, durably, that the provider refused a batch whole: its items are pending again, no round spent.

        Items that are at fault themselves are failed first, through `results.record`.
        """
        with self._db.transaction(durable=True):
            self._move(
                run_id,
                number,
                BatchState.REJECTED,
                checked_at=stamp(at),
                ended_at=stamp(at),
                next_check_at=None,
                faults=to_json([dict(fault) for fault in faults]),
            )
            release(self._db, run_id, number)

    def _move(self, run_id: int, number: int, target: BatchState, **columns: Any) -> None:
        change_batch(self._db, run_id, number, target, columns)

    def _where(self, condition: str, *params: Any) -> list[BatchRow]:
        rows = self._db.rows(
            f"SELECT {BATCH_COLUMNS} FROM batches WHERE {condition} ORDER BY number",  # noqa: S608  # our own columns
            params,
        )
        return [batch_row(row) for row in rows]


def _plain(value: Any) -> Any:
    """A Python value as SQLite keeps it."""
    if isinstance(value, datetime):
        return stamp(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, Mapping):
        return to_json(dict(value))
    if isinstance(value, (list, tuple)):
        return to_json(list(value))
    return value
