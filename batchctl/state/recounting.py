"""Counters put right from the rows they count, where something else changed them; what rows cannot tell stays."""

from __future__ import annotations

from batchctl.core.model import MAY_ANSWER, BatchState, Outcome
from batchctl.state.changing import quoted, release
from batchctl.state.connection import Database
from batchctl.state.verify import verify


def recount(db: Database, run_id: int) -> list[str]:
    """Count a run's items, batches and outcomes anew, in one transaction; returns what still does not balance.

    Fewer items than were planned are lost rows, which no counter may hide.
    """
    with db.transaction(durable=True):
        _run(db, run_id)
        _batches(db, run_id)
        _outcomes(db, run_id)
        return verify(db, run_id)


def _run(db: Database, run_id: int) -> None:
    counted = "(SELECT count(*) FROM items WHERE run_id = ?1"
    ends = "(SELECT coalesce(max(out_offset + out_length + 1), 0) FROM items WHERE run_id = ?1 AND state ="
    db.change(
        f"UPDATE runs SET planned = max(planned, {counted})), succeeded = {counted} AND state = 'succeeded'),"  # noqa: S608
        f" failed = {counted} AND state = 'failed'),"
        f" results_bytes = max(results_bytes, {ends} 'succeeded')),"
        f" errors_bytes = max(errors_bytes, {ends} 'failed')) WHERE id = ?1",
        (run_id,),
    )
    db.change(
        "UPDATE runs SET state = 'open', finished_at = NULL WHERE id = ? AND state = 'done'"
        " AND succeeded + failed < planned",
        (run_id,),
    )


def _batches(db: Database, run_id: int) -> None:
    """Counts of answers, of what waits, and open items in batches that will not answer.

    A collected batch with open items is ended again: its results are read once more, which pays for nothing. Items
    of batches that never ran, or that a person gave up, are pending.
    """
    attempts = "(SELECT count(*) FROM attempts AS a WHERE a.run_id = ?1 AND a.batch = batches.number AND a.outcome ="
    items = "(SELECT count(*) FROM items AS i WHERE i.run_id = ?1 AND i.batch = batches.number AND i.state ="
    counts = ", ".join(f"{outcome} = {attempts} '{outcome}')" for outcome in Outcome if outcome != Outcome.SUCCEEDED)
    db.change(
        f"UPDATE batches SET succeeded = {items} 'succeeded'), {counts} WHERE run_id = ?1",  # noqa: S608
        (run_id,),
    )
    held = "run_id = ?1 AND batch IS NOT NULL AND state = 'open' GROUP BY batch"
    for number, count, size, tokens, first, last in db.rows(
        f"SELECT batch, count(*), sum(length + 1), sum(tokens), min(seq), max(seq) FROM items WHERE {held}",  # noqa: S608
        (run_id,),
    ):
        db.change(
            "UPDATE batches SET first_seq = min(first_seq, ?3), last_seq = max(last_seq, ?4)"
            " WHERE run_id = ?1 AND number = ?2",
            (run_id, number, first, last),
        )
        db.change(
            "UPDATE batches SET requests = ?3, size = ?4, tokens = ?5, file_id = NULL"
            " WHERE run_id = ?1 AND number = ?2 AND state = 'waiting' AND requests <> ?3",
            (run_id, number, count, size, tokens),
        )
        if db.change(
            "UPDATE batches SET state = 'ended', collected_at = NULL, next_check_at = NULL"
            " WHERE run_id = ?1 AND number = ?2 AND state = 'collected' AND batch_id IS NOT NULL",
            (run_id, number),
        ):
            continue
        if db.row(
            f"SELECT 1 FROM batches WHERE run_id = ?1 AND number = ?2 AND state NOT IN ({_holding()})",  # noqa: S608
            (run_id, number),
        ):
            release(db, run_id, number)
    db.change(
        "UPDATE batches SET state = 'withdrawn' WHERE run_id = ?1 AND state = 'waiting' AND NOT EXISTS"
        " (SELECT 1 FROM items AS i WHERE i.run_id = ?1 AND i.batch = batches.number AND i.state = 'open')",
        (run_id,),
    )


def _holding() -> str:
    return quoted(MAY_ANSWER | {BatchState.WAITING})


def _outcomes(db: Database, run_id: int) -> None:
    db.change("DELETE FROM outcomes WHERE run_id = ?1", (run_id,))
    db.change(
        "INSERT INTO outcomes (run_id, lane, outcome, count)"
        " SELECT ?1, lane, outcome, count(*) FROM attempts WHERE run_id = ?1 AND outcome IS NOT NULL"
        " GROUP BY lane, outcome UNION ALL"
        " SELECT ?1, CASE WHEN batch IS NULL THEN 'sync' ELSE 'batch' END AS lane, 'succeeded', count(*) FROM items"
        " WHERE run_id = ?1 AND state = 'succeeded' GROUP BY lane",
        (run_id,),
    )
