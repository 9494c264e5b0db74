"""The items table: loading, looking up and paging items, and their failed attempts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain

from batchctl.core.model import ItemState, Outcome
from batchctl.state.changing import MARKS, chunks, expect, holdings
from batchctl.state.connection import Database
from batchctl.state.rows import (
    ATTEMPT_COLUMNS,
    ITEM_COLUMNS,
    MEMBER_COLUMNS,
    AttemptRow,
    ErrorGroup,
    ItemRow,
    Member,
    NewItem,
    attempt_row,
    item_row,
    stamp,
)

ERROR_GROUPS = 20
ROWS_A_STATEMENT = 250
OPENED = f"'{ItemState.OPEN}'"
PAGE = 5_000


class Items:
    """Items of all runs; every method takes the run's id."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(self, run_id: int, rows: Iterable[NewItem]) -> None:
        """Insert items of a run in planning, in one transaction.

        Args:
            rows: `NewItem` tuples in the order of seq; `batch` the waiting batch the item is packed into. A bad record
                has state failed, an outcome, its place in errors.jsonl, and no offset, length or batch.
        """
        rows = list(rows)
        opened = [row[:8] for row in rows if row[8] == "open"]
        failed = [row for row in rows if row[8] != "open"] if len(opened) < len(rows) else []
        columns = "INSERT INTO items (run_id, seq, id, line, source, offset, length, tokens, batch, state"
        values = f"({int(run_id)}, ?, ?, ?, ?, ?, ?, ?, ?"
        with self._db.transaction():
            # Measured: a row of its own statement takes twice the time, and a bound NULL as long as a value.
            for start in range(0, len(opened), ROWS_A_STATEMENT):
                part = opened[start : start + ROWS_A_STATEMENT]
                sql = f"{columns}) VALUES {', '.join([f'{values}, {OPENED})'] * len(part))}"
                self._db.change(sql, list(chain.from_iterable(part)))
            self._db.change_many(f"{columns}, outcome, out_offset, out_length) VALUES {values}, ?, ?, ?, ?)", failed)

    def extend(
        self, run_id: int, rows: Sequence[NewItem], *, failed: int, errors_end: int | None, at: datetime
    ) -> None:
        """Add items to an open run whose input goes on, with their ids and what they change in the books.

        Args:
            failed: how many of them are bad records, with lines in errors.jsonl before `errors_end`.

        Raises:
            StaleStateError: the run is not open, or its input has ended.
            sqlite3.IntegrityError: an id is taken; nothing is changed.
        """
        with self._db.transaction():
            self.add(run_id, rows)
            self._db.change_many(
                "INSERT INTO item_ids (run_id, id, seq) VALUES (?, ?, ?)",
                [(run_id, row[1], row[0]) for row in rows if row[1] is not None],
            )
            changed = self._db.change(
                "UPDATE runs SET planned = planned + ?, failed = failed + ?, updated_at = ?,"
                " errors_bytes = coalesce(?, errors_bytes) WHERE id = ? AND state = 'open' AND inputs = '[]'",
                (len(rows), failed, stamp(at), errors_end, run_id),
            )
            expect(changed, 1, f"run {run_id} takes no more items")

    def lookup(self, run_id: int, ids: Sequence[str]) -> dict[str, int]:
        """The seq of each id that the run has."""
        sql = f"SELECT id, seq FROM item_ids WHERE run_id = ? AND id IN ({MARKS})"  # noqa: S608  # question marks
        return {id_: seq for part in chunks(ids) for id_, seq in self._db.rows(sql, (run_id, *part))}

    def get(self, run_id: int, id: str) -> ItemRow | None:  # noqa: A002  # the charter's word
        """The item with this id."""
        row = self._db.row(
            f"SELECT {ITEM_COLUMNS} FROM items WHERE run_id = ?1"  # noqa: S608  # our own columns
            " AND seq = (SELECT seq FROM item_ids WHERE run_id = ?1 AND id = ?2)",
            (run_id, id),
        )
        return None if row is None else item_row(row)

    def by_seqs(self, run_id: int, seqs: Sequence[int]) -> dict[int, ItemRow]:
        """The items with these seqs, by seq."""
        sql = f"SELECT {ITEM_COLUMNS} FROM items WHERE run_id = ? AND seq IN ({MARKS})"  # noqa: S608  # our own columns
        return {row[0]: item_row(row) for part in chunks(seqs) for row in self._db.rows(sql, (run_id, *part))}

    def by_ids(self, run_id: int, ids: Sequence[str]) -> dict[str, ItemRow]:
        """The items with these ids, by id."""
        columns = ", ".join(f"i.{name}" for name in ItemRow._fields)
        sql = (
            f"SELECT {columns} FROM item_ids AS n JOIN items AS i ON i.run_id = n.run_id AND i.seq = n.seq"  # noqa: S608
            f" WHERE n.run_id = ? AND n.id IN ({MARKS})"
        )
        return {row[1]: item_row(row) for part in chunks(ids) for row in self._db.rows(sql, (run_id, *part))}

    def page(
        self,
        run_id: int,
        *,
        state: ItemState | None = None,
        outcome: Outcome | None = None,
        after_seq: int = 0,
        limit: int = 50_000,
    ) -> list[ItemRow]:
        """A page of items in input order, after the one with `after_seq`; fewer than `limit` rows is the last page."""
        rows = self._db.rows(
            f"SELECT {ITEM_COLUMNS} FROM items WHERE run_id = ?1 AND seq > ?2"  # noqa: S608  # our own columns
            " AND (?3 IS NULL OR state = ?3) AND (?4 IS NULL OR outcome = ?4) ORDER BY seq LIMIT ?5",
            (run_id, after_seq, state, outcome, limit),
        )
        return [item_row(row) for row in rows]

    def each(self, run_id: int, *, state: ItemState | None = None, outcome: Outcome | None = None) -> Iterator[ItemRow]:
        """All items, or those in one state or with one outcome, in input order, read a page at a time."""
        after = 0
        while page := self.page(run_id, state=state, outcome=outcome, after_seq=after, limit=PAGE):
            yield from page
            after = page[-1].seq

    def pending(self, run_id: int, after_seq: int = 0, limit: int = 50_000) -> list[Member]:
        """Open items that are in no batch, in input order."""
        rows = self._db.rows(
            f"SELECT {MEMBER_COLUMNS} FROM items INDEXED BY items_pending"  # noqa: S608  # our own columns
            " WHERE run_id = ? AND seq > ? AND state = 'open' AND batch IS NULL ORDER BY seq LIMIT ?",
            (run_id, after_seq, limit),
        )
        return [Member(*row) for row in rows]

    def count_pending(self, run_id: int) -> int:
        """How many open items are in no batch."""
        rows = self._db.rows(
            "SELECT count(*) FROM items INDEXED BY items_pending WHERE run_id = ? AND state = 'open' AND batch IS NULL",
            (run_id,),
        )
        return int(rows[0][0])

    def members(self, run_id: int, number: int, after_seq: int = 0, limit: int = 50_000) -> list[Member]:
        """Open items that a batch holds now, in input order."""
        batch = self._db.row(
            "SELECT round, first_seq, last_seq FROM batches WHERE run_id = ? AND number = ?", (run_id, number)
        )
        if batch is None:
            return []
        round_, first, last = batch
        if round_ == 0:
            where = "items WHERE run_id = ? AND batch = ? AND seq > ? AND state = 'open' AND seq BETWEEN ? AND ?"
        else:
            where = (
                "items INDEXED BY items_later WHERE run_id = ? AND batch = ? AND seq > ? AND state = 'open'"
                " AND seq BETWEEN ? AND ? AND round > 0"
            )
        rows = self._db.rows(
            f"SELECT {MEMBER_COLUMNS} FROM {where} ORDER BY seq LIMIT ?",  # noqa: S608  # our own columns
            (run_id, number, after_seq, first, last, limit),
        )
        return [Member(*row) for row in rows]

    def count_members(self, run_id: int, number: int) -> int:
        """How many open items a batch holds now."""
        row = self._db.row("SELECT first_seq, last_seq FROM batches WHERE run_id = ? AND number = ?", (run_id, number))
        return 0 if row is None else holdings(self._db, run_id, number, *row)[0]

    def has_member(self, run_id: int, number: int, seqs: Sequence[int]) -> set[int]:
        """Those of `seqs` that a batch holds, answered, or held before they left it."""
        sql = (
            f"SELECT seq FROM items WHERE run_id = ? AND batch = ? AND seq IN ({MARKS})"  # noqa: S608  # our columns
            f" UNION SELECT seq FROM attempts WHERE run_id = ? AND batch = ? AND seq IN ({MARKS})"
        )
        return {
            seq
            for part in chunks(seqs)
            for (seq,) in self._db.rows(sql, (run_id, number, *part, run_id, number, *part))
        }

    def attempts(self, run_id: int, seq: int) -> list[AttemptRow]:
        """The attempts of an item that did not succeed, oldest first."""
        rows = self._db.rows(
            f"SELECT {ATTEMPT_COLUMNS} FROM attempts WHERE run_id = ? AND seq = ? ORDER BY number",  # noqa: S608
            (run_id, seq),
        )
        return [attempt_row(row) for row in rows]

    def last_errors(self, run_id: int, after_seq: int = 0, limit: int = 1000) -> list[AttemptRow]:
        """The last attempt of each failed item, in input order."""
        columns = ", ".join(f"a.{name}" for name in ATTEMPT_COLUMNS.split(", "))
        rows = self._db.rows(
            f"SELECT {columns} FROM attempts a JOIN items i ON i.run_id = a.run_id AND i.seq = a.seq"  # noqa: S608
            " WHERE a.run_id = ? AND a.seq > ? AND i.state = 'failed' AND a.number = i.attempts"
            " ORDER BY a.seq LIMIT ?",
            (run_id, after_seq, limit),
        )
        return [attempt_row(row) for row in rows]

    def failed_outcomes(self, run_id: int) -> dict[str, int]:
        """Failed items by their last outcome; records refused before any sending are errored."""
        rows = self._db.rows(
            "SELECT a.outcome, count(*) FROM attempts a JOIN items i ON i.run_id = a.run_id AND i.seq = a.seq"
            " WHERE a.run_id = ? AND i.state = 'failed' AND a.number = i.attempts GROUP BY 1",
            (run_id,),
        )
        counts = {str(outcome): int(count) for outcome, count in rows if outcome is not None}
        failed = self._db.row("SELECT failed FROM runs WHERE id = ?", (run_id,))
        refused = (failed[0] if failed else 0) - sum(counts.values())
        if refused:
            counts[str(Outcome.ERRORED)] = counts.get(str(Outcome.ERRORED), 0) + refused
        return counts

    def error_groups(self, run_id: int) -> list[ErrorGroup]:
        """Failed items by their last error, the largest groups first (20 at most).

        Records refused before any sending have no attempt; they are one group of type `refused`.
        """
        rows = self._db.rows(
            "SELECT a.outcome, a.error_type, a.error_code, a.error_message, count(*) AS number, sum(count(*)) OVER ()"
            " FROM attempts a JOIN items i ON i.run_id = a.run_id AND i.seq = a.seq"
            " WHERE a.run_id = ? AND i.state = 'failed' AND a.number = i.attempts"
            " GROUP BY 1, 2, 3, 4 ORDER BY number DESC, 1, 2, 3, 4 LIMIT ?",
            (run_id, ERROR_GROUPS),
        )
        groups = [ErrorGroup(Outcome(row[0]), *row[1:5]) for row in rows]
        failed = self._db.row("SELECT failed FROM runs WHERE id = ?", (run_id,))
        refused = (failed[0] if failed else 0) - (rows[0][5] if rows else 0)
        if refused:
            groups.append(ErrorGroup(Outcome.ERRORED, "refused", None, "refused before it was sent", refused))
        return sorted(groups, key=lambda group: -group.count)[:ERROR_GROUPS]
