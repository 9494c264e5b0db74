"""The append-only events table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from batchctl.state.connection import Database
from batchctl.state.rows import EventRow, moment, stamp, to_json


class Events:
    """What happened, in the order it happened."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def add(
        self,
        run_id: int | None,
        batch: int | None,
        at: datetime,
        level: int,
        kind: str,
        text: str,
        data: Mapping[str, Any],
    ) -> None:
        """Append one event."""
        with self._db.transaction():
            self._db.change(
                "INSERT INTO events (run_id, batch, at, level, kind, text, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (run_id, batch, stamp(at), int(level), kind, text, to_json(dict(data))),
            )

    def list(self, run_id: int, after_id: int = 0, limit: int = 1000) -> list[EventRow]:
        """The events of a run after the one with `after_id`, oldest first."""
        rows = self._db.rows(
            "SELECT id, run_id, batch, at, level, kind, text, data FROM events"
            " WHERE run_id = ? AND id > ? ORDER BY id LIMIT ?",
            (run_id, after_id, limit),
        )
        return [
            EventRow(id_, run_id, batch, moment(at), level, kind, text, json.loads(data))
            for id_, run_id, batch, at, level, kind, text, data in rows
        ]
