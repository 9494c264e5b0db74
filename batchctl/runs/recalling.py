"""Tells a state file that is older than what was sent (a copy put back), before anything of it is sent twice.

Each create is written down beside the state file too. A batch that waits in the state file, but was sent, is in doubt
like any create without an answer: the provider's lists decide. One that the state file has no row for stops the run.
"""

from __future__ import annotations

from batchctl.core.errors import StateError
from batchctl.core.events import Level
from batchctl.core.model import IN_DOUBT, RUNNING, BatchState
from batchctl.files.sentlog import Sent
from batchctl.runs.held import HeldRun
from batchctl.state.rows import BatchRow, moment

RECALLED = IN_DOUBT | {BatchState.WAITING}


def recall(run: HeldRun) -> None:
    """Put every batch in doubt that was sent after this state file was copied."""
    for entry, batch in older_entries(run):
        run.store.batches.recall(
            run.id,
            batch.number,
            key=entry.key,
            at=moment(entry.at),
            sends=entry.sends,
            address=entry.address,
            key_hint=entry.key_hint,
            fence=entry.fence,
        )
        run.emit(
            "batch.recalled",
            f"batch {batch.number} was sent at {entry.at}, which this older copy of the state file does not know; "
            "the provider's lists decide before anything is sent again",
            batch=batch.number,
            level=Level.WARNING,
        )


def refuse_older_state(run: HeldRun) -> None:
    """Send nothing while the state file does not hold every batch that was sent, and what came of it.

    Raises:
        StateError: it has no row for one, or one that doctor took in is not collected yet.
    """
    if open_ := _answer_later(run):
        raise StateError(
            f"run {run.name} sends nothing before batch {', '.join(str(entry.batch) for entry in open_)} is collected: "
            "an older copy of the state file was put back, and its items may be answered there",
            hint=f"`batchctl poll --wait {run.name}` collects what has ended",
        )
    if lost := lost_entries(run):
        numbers = ", ".join(str(entry.batch) for entry in lost)
        raise StateError(
            f"run {run.name} sent batch {numbers} (the last at {lost[-1].at}), which {run.ctx.state_path} does not "
            "know: an older copy of it was put back; nothing more is sent",
            hint=f"`batchctl doctor --repair {run.name}` finds them in the provider's lists",
        )


def older_entries(run: HeldRun) -> list[tuple[Sent, BatchRow]]:
    """Batches that were sent later than the state file knows, with the sending."""
    return [
        (entry, batch)
        for entry, batch in _unknown(run)
        if batch is not None and batch.state in RECALLED and batch.requests == entry.requests
    ]


def lost_entries(run: HeldRun) -> list[Sent]:
    """Sendings of batches the state file has no row for, or one that holds something else."""
    return [
        entry
        for entry, batch in _unknown(run)
        if batch is None or (batch.state in RECALLED and batch.requests != entry.requests)
    ]


def _answer_later(run: HeldRun) -> list[Sent]:
    """Sendings of batches that were taken in without their items, which older batches hold, and have not answered."""
    answering = RUNNING | {BatchState.ENDED}
    return [entry for entry, batch in _unknown(run) if batch is not None and batch.state in answering]


def _unknown(run: HeldRun) -> list[tuple[Sent, BatchRow | None]]:
    """Sendings the state file does not know, with the row of that number; those of another run may stand there too."""
    known = run.store.batches.sendings(run.id)
    return [
        (entry, run.store.batches.get(run.id, entry.batch))
        for entry in run.sent.last.values()
        if known.get(entry.batch, 0) < entry.sends and f"{run.row.token}-" in entry.key
    ]
