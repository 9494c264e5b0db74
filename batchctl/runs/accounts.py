"""Tells a batch that was sent to another address, or with another key, than those now in use.

What is not listed there is not absent, and what is not found there is not lost. A key may be replaced by another of
the same workspace: what is found goes on, only that something is not found says nothing.
"""

from __future__ import annotations

from batchctl.core.model import IN_DOUBT
from batchctl.runs.held import HeldRun
from batchctl.state.rows import BatchRow


async def look_elsewhere(run: HeldRun, batch: BatchRow) -> str | None:
    """What of address and key changed since a batch was sent; kept in `run.elsewhere`.

    Returns:
        None where nothing changed, or nobody wrote down what they were.
    """
    now = await run.account()
    if batch.address is not None and batch.address != now.address:
        change = f"it was sent to {batch.address}, and {now.address} is in use now"
    elif batch.key_hint is not None and batch.key_hint != now.key_hint:
        change = f"it was sent to {now.address} with another key than the one in use now"
    else:
        run.elsewhere.pop(batch.number, None)
        return None
    run.elsewhere[batch.number] = change
    return change


def doubts_elsewhere(run: HeldRun) -> list[BatchRow]:
    """Batches in doubt whose create cannot be looked for with the address and key in use."""
    return [batch for batch in run.store.batches.in_state(run.id, *IN_DOUBT) if batch.number in run.elsewhere]


def needs_of_elsewhere(run: HeldRun) -> str | None:
    """The sentence that tells a person which account a batch must be looked for in."""
    for batch in doubts_elsewhere(run):
        return (
            f"whether batch {batch.number} was created is unknown, and its account cannot be asked: "
            f"{run.elsewhere[batch.number]}; set that back and poll, or `batchctl adopt {run.name} "
            f"--absent {batch.number}` if it surely was not created"
        )
    for number, change in sorted(run.elsewhere.items()):
        batch_id = run.batch(number).batch_id
        return f"batch {number} ({batch_id}) is not found: {change}; set that back, its answers are there"
    return None
