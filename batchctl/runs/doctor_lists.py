"""Compares a run with the provider's lists: batches of ours the state file does not know, uploads nothing uses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from batchctl.core.errors import BatchctlError
from batchctl.core.ids import Generated, Own, key_batch, resolve
from batchctl.core.model import IN_DOUBT, BatchState, ItemState
from batchctl.core.words import counted
from batchctl.files.sentlog import Sent
from batchctl.providers.base import Listed
from batchctl.providers.listing import SAME_TIME
from batchctl.runs.findings import Finding
from batchctl.runs.held import HeldRun
from batchctl.runs.recalling import lost_entries, older_entries
from batchctl.runs.submitting import record_created
from batchctl.state.rows import BatchRow, ItemRow, moment, stamp

UNSENT = IN_DOUBT | {BatchState.WAITING}
NAMED = 10


@dataclass(slots=True)
class Stray:
    """A batch at the provider that is ours and not in the state file.

    Args:
        batch: the unsent batch of the state file that holds exactly these items.
        entry: the sending that the state file does not know, where this is its batch.
        certain: false where it may be somebody else's batch of the same items as well.
        proven: its key or ids are of this run's making.
    """

    listed: Listed
    rows: list[ItemRow]
    batch: BatchRow | None
    entry: Sent | None = None
    certain: bool = True
    proven: bool = True

    @property
    def free(self) -> bool:
        """Whether its items wait for it and nothing else."""
        waiting = all(row.state is ItemState.OPEN and row.batch is None for row in self.rows)
        return bool(self.rows) and waiting and len({row.round for row in self.rows}) == 1


async def check_lists(run: HeldRun, *, repair: bool) -> list[Finding]:
    """Find strays and unused uploads, and take them in or delete them."""
    try:
        listed = [batch async for batch in run.provider.listed(run.row.created_at)]
        lost = lost_entries(run)
        strays = _sorted_out([stray async for stray in _strays(run, listed, lost)], lost)
        found = [_stray(run, stray, repair=repair) for stray in strays]
        doubtful = {stray.listed.created.batch_id for stray in strays if not stray.certain}
        found += [_lost(run, entry, listed, doubtful, repair=repair) for entry in lost]
        return found + [finding async for finding in _unused(run, listed, repair=repair)]
    except BatchctlError as error:
        return [
            Finding(run.name, f"the provider's lists could not be read: {error.message}", error.hint or "try later")
        ]


async def _strays(run: HeldRun, listed: list[Listed], lost: list[Sent]) -> AsyncIterator[Stray]:
    """Every stray, newest first; the sending of one is taken out of those that are lost."""
    older = {row.number: entry for entry, row in older_entries(run)}
    for place, batch in enumerate(listed):
        if batch.refused or run.store.batches.owner(batch.created.batch_id) is not None:
            continue
        if batch.key is not None and key_batch(batch.key, run.row.token) is None:
            continue
        ids = {id_ async for id_ in run.provider.custom_ids(batch)}
        if not ids and batch.key is None:
            continue  # nothing tells yet whose it is
        seqs, made = _seqs(run, ids)
        if batch.key is None and len(seqs) != len(ids):
            continue
        unsent, entry = _unsent_of(run, seqs) or _by_key(run, batch), _entry_of(batch, len(seqs), lost)
        certain: bool | None = True
        proven = batch.key is not None or made
        if not proven:
            sending = entry if unsent is None else older.get(unsent.number, entry)
            certain = _is_later(listed, place, unsent, sending)
        if certain is None:
            continue
        rows = list(run.store.items.by_seqs(run.id, sorted(seqs)).values())
        if rows and all(row.state is not ItemState.OPEN for row in rows):
            continue  # its items have their outcome, so nothing needs it
        if entry is not None and certain:
            lost.remove(entry)
        yield Stray(batch, rows, unsent, entry, certain, proven)


def _sorted_out(strays: list[Stray], lost: list[Sent]) -> list[Stray]:
    """Strays (newest first) of which at most one is for any unsent batch: the oldest, which the state file may know.

    Newer ones of the same items are lost sendings; where no such sending is known, and the ids are the items' own, any
    of them may be somebody else's.
    """
    groups: dict[int, list[Stray]] = {}
    for stray in strays:
        if stray.batch is not None:
            groups.setdefault(stray.batch.number, []).append(stray)
    for *newer, oldest in groups.values():
        ours = all(stray.proven or stray.entry for stray in newer)
        for stray in newer if ours else ():
            stray.batch = None
        for stray in [oldest] if ours else [*newer, oldest]:
            if newer and stray.entry is not None:
                lost.append(stray.entry)
                stray.entry = None
            stray.certain = stray.certain and ours
    return strays


def _is_later(listed: list[Listed], place: int, unsent: BatchRow | None, sending: Sent | None) -> bool | None:
    """Whether a batch with items' own ids came after a sending that may have made it; None where no sending can have.

    Such ids may be in anybody's batch of the same items. What was listed before the sending, up to its fence, is not
    of it; where the order is not certain, or the state file knows of no sending, a person must look.
    """
    if unsent is not None and unsent.state in IN_DOUBT:
        fence = unsent.fence
    elif sending is not None:
        fence = sending.fence
    else:
        return None if unsent is None else False
    batch = listed[place]
    behind = next((other for other in listed[: place + 1] if other.created.batch_id == fence), None)
    if behind is None:
        return True
    if batch is behind or (batch.created_at and behind.created_at and batch.created_at < behind.created_at - SAME_TIME):
        return None
    return False


def _entry_of(batch: Listed, requests: int, lost: list[Sent]) -> Sent | None:
    """The sending that made a batch, by key or, where the provider keeps none, by its number of requests."""
    if batch.key is not None:
        return next((entry for entry in lost if entry.key == batch.key), None)
    return next((entry for entry in reversed(lost) if entry.requests == requests), None)


def _by_key(run: HeldRun, listed: Listed) -> BatchRow | None:
    """The unsent batch that a key names; the input file with the ids may be gone."""
    number = None if listed.key is None else key_batch(listed.key, run.row.token)
    batch = None if number is None else run.store.batches.get(run.id, number)
    fits = batch is not None and batch.state in UNSENT and listed.requests in (0, batch.requests)
    return batch if fits else None


def _seqs(run: HeldRun, ids: set[str]) -> tuple[set[int], bool]:
    """The items behind custom ids, and whether any of these is of this run's making, which proves whose they are."""
    own, made = [], set()
    for id_ in ids:
        match resolve(id_, run.row.token):
            case Own():
                own.append(id_)
            case Generated(seq=seq):
                made.add(seq)
    return made | set(run.store.items.lookup(run.id, own).values()), bool(made)


def _unsent_of(run: HeldRun, seqs: set[int]) -> BatchRow | None:
    if not seqs:
        return None
    first = run.store.items.by_seqs(run.id, [min(seqs)]).get(min(seqs))
    batch = None if first is None or first.batch is None else run.store.batches.get(run.id, first.batch)
    if batch is None or batch.state not in UNSENT or batch.requests != len(seqs):
        return None
    members = {member.seq for member in run.store.items.members(run.id, batch.number, limit=len(seqs) + 1)}
    return batch if members == seqs else None


def _stray(run: HeldRun, stray: Stray, *, repair: bool) -> Finding:
    requests = stray.listed.requests or len(stray.rows)
    batch_id = stray.listed.created.batch_id
    if not stray.certain:
        number = f" --batch {stray.batch.number}" if stray.batch else ""
        return Finding(
            run.name,
            f"batch {batch_id} ({counted(requests, 'request')}) has just the items of one of ours that was not sent "
            "yet: it may be ours, if an older copy of everything was put back, or somebody else's",
            f"look at its time in the provider's console; `batchctl adopt {run.name} {batch_id}{number}` takes it",
        )
    text = f"batch {batch_id} ({counted(requests, 'request')}) is ours, but not in the state file"
    finding = Finding(run.name, text, "taken in: the next poll collects it", mendable=True)
    if repair:
        _take_in(run, stray)
        finding.mended = True
    return finding


def _take_in(run: HeldRun, stray: Stray) -> None:
    """Give a stray its row: that of the unsent batch with its items, or a new one.

    A new one holds its items where they are pending. Where they still stand in an older batch, its answers will count
    as late ones; until they are here nothing may be sent, and a note of one more sending sees to that.
    """
    now = run.ctx.now()
    created, entry = stray.listed.created, stray.entry
    key = stray.listed.key or (entry.key if entry else f"{run.row.token}-doctor-{created.batch_id}")
    number = stray.batch.number if stray.batch is not None else _new_number(run, entry)
    if stray.batch is None and not stray.free:
        run.sent.note(Sent(number, 2, key, stamp(now), stray.listed.requests))
    with run.store.transaction(durable=True):
        if stray.batch is None:
            _new_batch(run, number, stray)
        if stray.batch is None or stray.batch.state is BatchState.WAITING:
            run.store.batches.intend(run.id, number, key, now)
        record_created(run, number, created)
    if entry is not None and entry.batch != number:
        run.sent.note(Sent(entry.batch, 0))
    run.emit(
        "batch.taken_in",
        f"batch {number} is {created.batch_id}, found in the provider's list",
        batch=number,
        data={"batch_id": created.batch_id},
    )


def _lost(run: HeldRun, entry: Sent, listed: list[Listed], doubtful: set[str], *, repair: bool) -> Finding:
    """A sending that no listed batch was found for: it may hide in one that cannot be read yet, or never arrived."""
    text = f"batch {entry.batch} ({entry.requests:,} requests) was sent at {entry.at} and is not in the state file"
    hidden = [batch.created.batch_id for batch in listed if _may_be(run, entry, batch)]
    hidden += sorted(doubtful)
    age = (run.ctx.now() - moment(entry.at)).total_seconds()
    if hidden or age < run.settings.settle_after:
        where = f" ({', '.join(hidden[:NAMED])} may be it)" if hidden else ""
        return Finding(run.name, text, f"`doctor` again when the provider's batches have ended{where}")
    finding = Finding(run.name, text, "it is in none of the provider's lists, so it was never created", mendable=True)
    if repair:
        run.sent.note(Sent(entry.batch, 0))
        finding.mended = True
    return finding


def _may_be(run: HeldRun, entry: Sent, batch: Listed) -> bool:
    if batch.refused or run.store.batches.owner(batch.created.batch_id) is not None:
        return False
    if batch.key is not None:
        return batch.key == entry.key
    return batch.ids_at is None and batch.requests in (0, entry.requests)


def _new_number(run: HeldRun, entry: Sent | None) -> int:
    if entry is not None and run.store.batches.get(run.id, entry.batch) is None:
        return entry.batch
    return run.store.batches.next_number(run.id)


def _new_batch(run: HeldRun, number: int, stray: Stray) -> None:
    seqs = [row.seq for row in stray.rows]
    round_ = min((row.round for row in stray.rows), default=0)
    run.store.batches.add_waiting(
        run.id,
        number,
        round=round_,
        requests=stray.listed.requests or len(seqs),
        size=sum((row.length or 0) + 1 for row in stray.rows),
        tokens=sum(row.tokens for row in stray.rows),
        first_seq=min(seqs, default=1),
        last_seq=max(seqs, default=run.row.planned),
    )
    if stray.free:
        run.store.batches.assign(run.id, number, seqs, round_)
    else:
        run.store.batches.also_sent(run.id, number, seqs, run.ctx.now())


async def _unused(run: HeldRun, listed: list[Listed], *, repair: bool) -> AsyncIterator[Finding]:
    """Uploaded input files of ours that no batch was made from and no batch of the state file waits to use."""
    used = {batch.input_file for batch in listed}
    used |= {batch.file_id for batch in run.store.batches.in_state(run.id, *UNSENT)}
    async for file_id, key in run.provider.uploads(run.row.created_at):
        if file_id in used or key_batch(key, run.row.token) is None:
            continue
        finding = Finding(
            run.name, f"the uploaded file {file_id} is used by no batch", "deleted at the provider", mendable=True
        )
        if repair:
            await run.provider.discard(file_id)
            finding.mended = True
        yield finding
