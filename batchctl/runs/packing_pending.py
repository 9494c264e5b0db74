"""Puts pending items (errored, expired, missing, or of a refused batch) into new, smaller waiting batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from batchctl.core.model import Lane, Outcome
from batchctl.core.packing import Packer
from batchctl.core.words import counted
from batchctl.files.spool import open_spool, read_line
from batchctl.runs.held import HeldRun
from batchctl.runs.limits import id_room
from batchctl.runs.recording import Slice
from batchctl.state.rows import Member

PAGE = 20_000


@dataclass(slots=True)
class _Open:
    """A batch being filled."""

    packer: Packer
    seqs: list[int] = field(default_factory=list)
    size: int = 0
    tokens: int = 0


def pack_pending(run: HeldRun) -> list[int]:
    """Assign every pending item to a new waiting batch, by round and (where the provider wants it) model.

    Returns:
        The numbers of the new batches.
    """
    close_spent(run)
    limits = run.limits
    room = id_room(run.settings)
    groups: dict[tuple[int, str | None], _Open] = {}
    made: list[int] = []
    after = 0
    while page := run.store.items.pending(run.id, after_seq=after, limit=PAGE):
        after = page[-1].seq
        for member, group in zip(page, _groups_of(run, page), strict=True):
            batch = groups.get(group)
            if batch is None:
                batch = groups[group] = _Open(
                    Packer(limits.requests, limits.bytes, limits.envelope_bytes, limits.separator_bytes)
                )
            if batch.packer.add(member.length + room) and batch.seqs:
                made.append(_close(run, batch, member.round))
                batch.seqs, batch.size, batch.tokens = [], 0, 0
            batch.seqs.append(member.seq)
            batch.size += member.length + 1
            batch.tokens += member.tokens
    made.extend(_close(run, batch, round_) for (round_, _), batch in groups.items() if batch.seqs)
    return made


def close_spent(run: HeldRun) -> None:
    """Fail pending items for good whose rounds are used up (given-up batches, a lowered --max-resubmits)."""
    after = 0
    while page := run.store.items.pending(run.id, after_seq=after, limit=PAGE):
        after = page[-1].seq
        spent = [member.seq for member in page if member.round > run.settings.max_resubmits]
        part = Slice(run, Lane.BATCH)
        for row in run.store.items.by_seqs(run.id, spent).values():
            part.close(row, row.outcome or Outcome.EXPIRED)
        part.commit()


def _groups_of(run: HeldRun, members: list[Member]) -> list[tuple[int, str | None]]:
    """For each item its round, and what else may not be mixed in a batch."""
    if not run.settings.requests:
        return [(member.round, run.settings.model) for member in members]
    with open_spool(run.spool) as spool:
        return [(member.round, _target_of(run, read_line(spool, member.offset, member.length))) for member in members]


def _target_of(run: HeldRun, line: bytes) -> str:
    """Where a finished request goes: they may name several models or endpoints."""
    _, endpoint, body = run.form.parse_request(msgspec.json.decode(line))
    return f"{endpoint} {body.get('model')}" if run.limits.one_model else endpoint


def _close(run: HeldRun, batch: _Open, round_: int) -> int:
    number = run.store.batches.next_number(run.id)
    with run.store.transaction(durable=True):
        run.store.batches.add_waiting(
            run.id,
            number,
            round=round_,
            requests=len(batch.seqs),
            size=batch.size,
            tokens=batch.tokens,
            first_seq=batch.seqs[0],
            last_seq=batch.seqs[-1],
        )
        run.store.batches.assign(run.id, number, batch.seqs, round_)
    run.emit(
        "batch.packed",
        f"batch {number}: {counted(len(batch.seqs), 'item')} to send again (round {round_})",
        batch=number,
        data={"requests": len(batch.seqs), "round": round_},
    )
    return number
