"""Reading the batches table."""

from __future__ import annotations

from typing import Any

from batchctl.core.model import IN_DOUBT, RUNNING, BatchState
from batchctl.state.changing import quoted
from batchctl.state.connection import Database
from batchctl.state.rows import BATCH_COLUMNS, BatchRow, Load, batch_row


class BatchReading:
    """What can be asked about batches."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def all(self, run_id: int) -> list[BatchRow]:
        """Every batch of a run, by number."""
        return self._where("run_id = ?", run_id)

    def get(self, run_id: int, number: int) -> BatchRow | None:
        """One batch."""
        return next(iter(self._where("run_id = ? AND number = ?", run_id, number)), None)

    def in_state(self, run_id: int, *states: BatchState) -> list[BatchRow]:
        """The batches in one of these states, by number."""
        return self._where(f"run_id = ? AND state IN ({quoted(states)})", run_id)

    def with_spent_files(self, run_id: int) -> list[BatchRow]:
        """Batches that are over and whose uploaded input file was not seen deleted."""
        return self._where(
            "run_id = ? AND file_id IS NOT NULL AND state IN ('collected', 'rejected', 'withdrawn')", run_id
        )

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

    def rivals(self, run_id: int, number: int) -> list[str]:
        """Runs of the same provider with another create in doubt of just as many requests as this batch has."""
        rows = self._db.rows(
            "SELECT DISTINCT runs.name FROM batches AS other JOIN runs ON runs.id = other.run_id"  # noqa: S608  # our own states
            " JOIN batches AS this ON this.run_id = ?1 AND this.number = ?2"
            f" WHERE other.requests = this.requests AND other.state IN ({quoted(IN_DOUBT)})"
            " AND (other.run_id <> ?1 OR other.number <> ?2)"
            " AND provider = (SELECT provider FROM runs WHERE id = ?1)",
            (run_id, number),
        )
        return [str(row[0]) for row in rows]

    def open_load(self, run_id: int) -> Load:
        """What stands in the provider's queue, or may."""
        row = self._db.row(
            "SELECT count(*), coalesce(sum(requests), 0), coalesce(sum(tokens), 0) FROM batches"  # noqa: S608
            f" WHERE run_id = ? AND state IN ({quoted(IN_DOUBT | RUNNING)})",
            (run_id,),
        )
        assert row is not None  # an aggregate always has a row
        return Load(*row)

    def _where(self, condition: str, *params: Any) -> list[BatchRow]:
        rows = self._db.rows(
            f"SELECT {BATCH_COLUMNS} FROM batches WHERE {condition} ORDER BY number",  # noqa: S608  # our own columns
            params,
        )
        return [batch_row(row) for row in rows]
