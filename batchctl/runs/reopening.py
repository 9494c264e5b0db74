"""Takes failed items back: their lines leave errors.jsonl and they are pending again, whole or not at all.

Asked for by a person (`resubmit --failed`), or by a late answer of a batch that had been given up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from batchctl.core.model import ItemState
from batchctl.runs.held import HeldRun


def take_back(run: HeldRun, seqs: Sequence[int], then: Callable[[], None] | None = None) -> None:
    """Make failed items pending again; nothing of the run may be in errors.jsonl without being counted.

    The shorter errors.jsonl is written beside the old one, then one transaction makes it count. A process that dies
    before that has changed nothing; one that dies after it leaves a file that the next one puts in place.

    Args:
        then: what else belongs in that transaction, such as the answers that make the items succeed after all.

    Raises:
        StaleStateError: one of them is not failed, or was never a request.
    """
    leaving = frozenset(seqs)
    places = sorted(
        (row.out_offset, row.out_length, row.seq)
        for row in run.store.items.each(run.id, state=ItemState.FAILED)
        if row.out_offset is not None and row.out_length is not None and row.seq not in leaving
    )
    offsets = run.errors.stage((offset, length) for offset, length, _ in places)
    moved = {seq: (offset, length) for offset, (_, length, seq) in zip(offsets, places, strict=True)}
    end = sum(length + 1 for _, length, _ in places)
    with run.store.transaction(durable=True):
        run.store.results.reopen(run.id, seqs, at=run.ctx.now())
        run.store.results.remap(run.id, moved)
        run.store.runs.reopen(run.id, at=run.ctx.now())
        if then is not None:
            then()
        run.store.results.set_ends(run.id, run.store.results.ends(run.id)[0], end)
    run.errors.adopt()
    run.refresh()


def requestable(run: HeldRun) -> list[int]:
    """The failed items that were requests, so that they can be sent again; bad records cannot."""
    return [row.seq for row in run.store.items.each(run.id, state=ItemState.FAILED) if row.offset is not None]
