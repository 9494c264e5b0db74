"""Calls a run done: only when every item is in one of its two files, counted from the items themselves."""

from __future__ import annotations

import msgspec

from batchctl.core.errors import BatchctlError, StorageError
from batchctl.core.events import Level
from batchctl.core.model import MAY_ANSWER, BatchState, Lane, Outcome, RunState
from batchctl.files.outputs import OWN_FILES
from batchctl.runs.held import HeldRun
from batchctl.runs.manifest import manifest_of
from batchctl.runs.recording import Slice
from batchctl.state.rows import RunRow

PAGE = 5_000


def finish_if_settled(run: HeldRun) -> bool:
    """Write the manifest and close the run where nothing is open any more; true when it is settled."""
    row = run.refresh()
    if is_settled(row):
        return True
    if run.store.batches.in_state(run.id, BatchState.WAITING, *MAY_ANSWER):
        return False
    if not row.inputs and row.state is not RunState.CANCELED:
        return False  # its input was not read to its end
    if row.state is RunState.CANCELED:
        close_open_items(run, Outcome.CANCELED)
        row = run.refresh()
    if row.open:
        return False
    finish(run)
    return True


def is_settled(row: RunRow) -> bool:
    """Whether nothing will change in a run any more by itself."""
    return row.finished_at is not None


def close_open_items(run: HeldRun, outcome: Outcome) -> int:
    """Give every item that waits for nothing a final line; returns how many there were."""
    closed = 0
    while page := run.store.items.pending(run.id, after_seq=0, limit=PAGE):
        rows = run.store.items.by_seqs(run.id, [member.seq for member in page])
        part = Slice(run, Lane.BATCH)
        for row in rows.values():
            part.close(row, outcome)
        part.commit()
        closed += len(page)
    return closed


def finish(run: HeldRun) -> None:
    """Recount, write the manifest, publish the files and, last, mark the run done: dying before that finishes again.

    Raises:
        BatchctlError: the counters and the items disagree; the run stays open.
    """
    wrong = run.store.runs.verify(run.id)
    if wrong:
        raise BatchctlError(
            f"run {run.name} is not closed, its books do not balance: {'; '.join(wrong)}",
            hint=f"`batchctl doctor {run.name}` shows and repairs what it can",
        )
    run.sync_logs()
    _refuse_lost_lines(run)
    canceled = run.refresh().state is RunState.CANCELED
    write_manifest(run, RunState.CANCELED if canceled else RunState.DONE)
    run.output.publish(OWN_FILES)
    run.store.runs.finish(run.id, at=run.ctx.now())
    row = run.refresh()
    run.emit(
        "run.done",
        f"run {run.name} is {row.state}: {row.succeeded:,} succeeded, {row.failed:,} failed of {row.planned:,}",
        level=Level.INFO if not row.failed else Level.WARNING,
        data={"planned": row.planned, "succeeded": row.succeeded, "failed": row.failed},
    )


def _refuse_lost_lines(run: HeldRun) -> None:
    """Done means that every counted item stands in its file, whatever happened to the files meanwhile.

    Raises:
        StorageError: lines are gone, or can be read no more.
    """
    row = run.refresh()
    for log, counted in ((run.results, row.succeeded), (run.errors, row.failed)):
        found = log.count_good()
        if found != counted:
            raise StorageError(
                f"run {run.name} is not closed: {log.path} holds {found:,} whole lines, and {counted:,} were written",
                hint=f"put the right file back, or see `batchctl doctor {run.name}`",
            )


def write_manifest(run: HeldRun, state: RunState) -> None:
    """Write manifest.json beside the result files, whole or not at all; `state` is what the run will be."""
    data = msgspec.json.format(msgspec.json.encode(manifest_of(run, state)), indent=2)
    run.output.write_atomic("manifest.json", data + b"\n")
