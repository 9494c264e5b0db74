"""A batch the provider refused whole after taking it: nothing ran, so no round is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from batchctl.core.errors import SystemicError
from batchctl.core.events import Level
from batchctl.core.model import Answer, BatchState, ErrorKind, ItemError, Lane, Outcome
from batchctl.providers.base import BatchCheck, BatchFault
from batchctl.runs.held import HeldRun
from batchctl.runs.input_files import discard_file
from batchctl.runs.lines import members
from batchctl.runs.recording import Slice
from batchctl.runs.splitting import halve, halve_for_room
from batchctl.runs.submitting import pause_for_room
from batchctl.state.rows import BatchRow, Member

NAMED = 3  # kinds of faults, and lines of each, that are told


async def rejected(run: HeldRun, batch: BatchRow, check: BatchCheck) -> None:
    """Sort out a refusal: wait for room, fail the items at fault, or stop the run.

    Raises:
        SystemicError: a fault names no item, so sending the rest again could not succeed (field report 37).
    """
    given_up = batch.state is BatchState.CANCELING
    if check.queue_full and not given_up:
        await _wait_for_room(run, batch, check)
        return
    if check.too_large and batch.requests > 1 and not given_up:
        run.store.batches.back_to_waiting(
            run.id, batch.number, not_before=None, refusals=batch.refusals, keep_file=True
        )
        await halve(run, batch, f"refused as too large: {check.faults[0].message}")
        return
    shifted = run.store.items.count_members(run.id, batch.number) != batch.requests
    at = {} if shifted else _members_at(run, batch, check.faults)
    by_line = {fault.line: fault for fault in check.faults if not check.systemic}
    guilty = {member.seq: by_line[line] for line, member in at.items() if line in by_line}
    unexplained = not guilty or any(fault.line is None for fault in check.faults)
    with run.store.transaction(durable=True):
        _fail(run, batch, guilty)
        run.store.batches.reject(
            run.id,
            batch.number,
            [{"code": fault.code, "message": fault.message, "line": fault.line} for fault in check.faults],
            at=run.ctx.now(),
        )
    await discard_file(run, batch)
    reasons = _said(check.faults, at) or "the provider gave no reason"
    run.emit(
        "batch.rejected",
        f"batch {batch.number} ({batch.batch_id}) was refused whole, nothing ran: {reasons}",
        batch=batch.number,
        level=Level.ERROR,
        data={"batch_id": batch.batch_id, "faults": len(check.faults), "items_at_fault": len(guilty)},
    )
    if unexplained and not shifted and not given_up:
        raise SystemicError(
            f"batch {batch.number} was refused by the provider: {reasons}",
            hint="the items not named stay open: the same command goes on once the account allows it; what the request "
            "itself asks for is changed in a new run (--new, or another --name)",
        )


def _said(faults: Sequence[BatchFault], at: Mapping[int, Member]) -> str:
    """The first kinds of faults, each with the first of its lines and the items behind them."""
    kinds: dict[tuple[str | None, str], list[int]] = {}
    for fault in faults:
        lines = kinds.setdefault((fault.code, fault.message), [])
        if fault.line is not None:
            lines.append(fault.line)
    return "; ".join(f"{code}{_places(lines, at)}: {message}" for (code, message), lines in list(kinds.items())[:NAMED])


def _places(lines: list[int], at: Mapping[int, Member]) -> str:
    if not lines:
        return ""
    more = f" and {len(lines) - NAMED:,} more" if len(lines) > NAMED else ""
    items = ", ".join(at[line].id for line in lines[:NAMED] if line in at)
    behind = f": {items}" if items else ""
    return f" ({'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines[:NAMED]))}{behind}{more})"


def _members_at(run: HeldRun, batch: BatchRow, faults: tuple[BatchFault, ...]) -> dict[int, Member]:
    """The items behind the line numbers of a refusal, by line; only while the batch holds what was sent."""
    wanted = {fault.line for fault in faults if fault.line is not None}
    found: dict[int, Member] = {}
    for line, member in enumerate(members(run, batch), start=1):
        if len(found) == len(wanted):
            break
        if line in wanted:
            found[line] = member
    return found


def _fail(run: HeldRun, batch: BatchRow, guilty: dict[int, BatchFault]) -> None:
    rows = run.store.items.by_seqs(run.id, list(guilty))
    part = Slice(run, Lane.BATCH, batch)
    for seq, fault in guilty.items():
        error = ItemError("invalid_request", fault.message, ErrorKind.PERMANENT, code=fault.code)
        part.take(rows[seq], Answer(custom_id="", outcome=Outcome.ERRORED, error=error))
    part.commit()


async def _wait_for_room(run: HeldRun, batch: BatchRow, check: BatchCheck) -> None:
    refusals = batch.refusals + 1
    pause = pause_for_room(run, refusals)
    run.store.batches.back_to_waiting(
        run.id,
        batch.number,
        not_before=run.ctx.now() + timedelta(seconds=pause),
        refusals=refusals,
        keep_file=True,
    )
    reason = check.faults[0].message if check.faults else check.status
    run.emit(
        "batch.queue_full",
        f"batch {batch.number} found no room in the provider's queue ({reason}); it waits and no resubmission is spent",
        batch=batch.number,
        level=Level.WARNING,
        data={"refusals": refusals},
    )
    await halve_for_room(run, batch)
