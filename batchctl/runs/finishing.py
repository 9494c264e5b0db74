"""Calls a run done: only when every item is in one of its two files, counted from the items themselves."""

from __future__ import annotations

import msgspec

from batchctl.core.errors import BatchctlError
from batchctl.core.events import Level
from batchctl.core.model import BatchState, Lane, Outcome, RunState
from batchctl.runs.held import HeldRun
from batchctl.runs.manifest import manifest_of
from batchctl.runs.recording import Slice
from batchctl.state.rows import RunRow

LIVE = (
    BatchState.WAITING,
    BatchState.SUBMITTING,
    BatchState.UNKNOWN,
    BatchState.IN_PROGRESS,
    BatchState.CANCELING,
    BatchState.ENDED,
)
PAGE = 5_000
MANIFEST = "manifest.json"


class _Manifest(msgspec.Struct):
    """What tells whether a manifest is of the run as it is now."""

    state: str
    counts: dict[str, int]


def finish_if_settled(run: HeldRun) -> bool:
    """Write the manifest and close the run where nothing is open any more; true when it is settled."""
    row = run.refresh()
    if is_settled(row) and _is_finished(run):
        return True
    if run.store.batches.in_state(run.id, *LIVE):
        return False
    if row.state is RunState.CANCELED:
        close_open_items(run, Outcome.CANCELED)
        row = run.refresh()
    if row.open:
        return False
    finish(run)
    return True


def is_settled(row: RunRow) -> bool:
    """Whether nothing will change in a run any more by itself."""
    return row.state is RunState.DONE or (row.state is RunState.CANCELED and not row.open)


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
    row = run.refresh()
    ends_as = RunState.CANCELED if row.state is RunState.CANCELED else RunState.DONE
    write_manifest(run, ends_as)
    run.output.publish((*(f"{name}.jsonl" for name in ("results", "errors")), MANIFEST))
    if row.state is not ends_as:
        run.store.runs.move(run.id, ends_as, needs=None, at=run.ctx.now())
    run.emit(
        "run.done",
        f"run {run.name} is done: {row.succeeded:,} succeeded, {row.failed:,} failed of {row.planned:,}",
        level=Level.INFO if not row.failed else Level.WARNING,
        data={"planned": row.planned, "succeeded": row.succeeded, "failed": row.failed},
    )


def write_manifest(run: HeldRun, state: RunState) -> None:
    """Write manifest.json beside the result files, whole or not at all; `state` is what the run will be."""
    data = msgspec.json.format(msgspec.json.encode(manifest_of(run, state)), indent=2)
    run.output.write_atomic(MANIFEST, data + b"\n")


def _is_finished(run: HeldRun) -> bool:
    """Whether `finish` got to its end: a done run says so itself, a canceled one by its manifest."""
    if run.row.state is RunState.DONE:
        return True
    try:
        manifest = msgspec.json.decode((run.output.local / MANIFEST).read_bytes(), type=_Manifest)
    except (OSError, msgspec.DecodeError):
        return False
    counts = manifest.counts.get("succeeded"), manifest.counts.get("failed")
    return manifest.state == run.row.state and counts == (run.row.succeeded, run.row.failed)
