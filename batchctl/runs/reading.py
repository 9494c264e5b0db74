"""What the read-only commands show, as plain data: nothing here writes, locks or sends."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from batchctl.core.errors import InputError, StorageError
from batchctl.core.model import BatchState, ItemState, Outcome
from batchctl.core.prices import MONEY_PLACES
from batchctl.files.names import workdir
from batchctl.files.outputs import OutputFolder
from batchctl.files.spool import read_line
from batchctl.state.items import ERROR_GROUPS
from batchctl.state.rows import BatchRow, ErrorGroup, ItemRow, RunRow, stamp, stamp_or_none
from batchctl.state.store import Store

REFUSED = "refused"
_ITEM = re.compile(r"^item (?:'.*?'|\".*?\"): ")
_VARYING = re.compile(r"id '.*' stands|id \".*\" stands|\d+")


class _Error(msgspec.Struct):
    type: str
    message: str


class _ErrorLine(msgspec.Struct):
    """What a summary needs of a line of errors.jsonl."""

    error: _Error


_ERROR = msgspec.json.Decoder(_ErrorLine)

_SHOWN_BATCH_STATES = {
    BatchState.WAITING: "waiting",
    BatchState.SUBMITTING: "waiting",  # for its id; whether it was created is not settled
    BatchState.IN_PROGRESS: "in_progress",
    BatchState.CANCELING: "in_progress",
    BatchState.ENDED: "ended",
    BatchState.COLLECTED: "ended",
    BatchState.ABANDONED: "ended",
    BatchState.UNKNOWN: "unknown",
}
"""How the finer states are summed up; refused and withdrawn batches hold no items and are left out."""


def run_named(store: Store, name: str) -> RunRow:
    """The run of this name.

    Raises:
        InputError: there is none.
    """
    row = store.runs.get(name)
    if row is None:
        raise no_run(store, name)
    return row


def no_run(store: Store, name: str) -> InputError:
    """The refusal of a name that no run has."""
    from difflib import get_close_matches

    close = get_close_matches(name, [run.name for run in store.runs.all()], n=1)
    meant = f"did you mean {close[0]!r}? " if close else ""
    return InputError(f"no run {name!r} in {store.path}", hint=f"{meant}`batchctl status` lists the runs")


def status_of(store: Store, row: RunRow) -> dict[str, Any]:
    """One run as `status --json` shows it."""
    batches = dict.fromkeys(("waiting", "in_progress", "ended", "unknown"), 0)
    for state, count in store.runs.batch_states(row.id).items():
        if shown := _SHOWN_BATCH_STATES.get(state):
            batches[shown] += count
    return summary_of(store, row) | {"batches": batches, "needs": row.needs}


def summary_of(store: Store, row: RunRow) -> dict[str, Any]:
    """What status and manifest both say of a run."""
    return {
        "run": row.name,
        "state": str(row.state),
        "counts": {"planned": row.planned, "succeeded": row.succeeded, "failed": row.failed, "open": row.open},
        "outcomes": outcomes_of(store, row),
        "attempts": store.runs.outcomes(row.id),
        "tokens": {
            "input": row.input_tokens,
            "output": row.output_tokens,
            "cached_input": row.cached_input_tokens,
        },
        "cost_usd": round(row.cost_usd, MONEY_PLACES),
        "created_at": stamp(row.created_at),
        "updated_at": stamp(row.updated_at),
    }


def outcomes_of(store: Store, row: RunRow) -> dict[str, int]:
    """Settled items by their last outcome; they add up to succeeded and failed."""
    found = {str(Outcome.SUCCEEDED): row.succeeded} if row.succeeded else {}
    return found | store.items.failed_outcomes(row.id) if row.failed else found


def error_groups(store: Store, row: RunRow) -> list[ErrorGroup]:
    """Failed items by their last error, the largest groups first; refused records by why they were refused."""
    groups = store.items.error_groups(row.id)
    if not any(group.error_type == REFUSED for group in groups):
        return groups
    try:
        refused = _refused_groups(store, row)
    except StorageError:  # errors.jsonl is gone: that they were refused is all that is known
        return groups
    groups = [group for group in groups if group.error_type != REFUSED]
    return sorted(groups + refused, key=lambda group: -group.count)[:ERROR_GROUPS]


def _refused_groups(store: Store, row: RunRow) -> list[ErrorGroup]:
    """Records that never were sent, by the reason that errors.jsonl gives; numbers and ids in it make no new group."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    with _recorded(store.path, row, "errors.jsonl", row.errors_bytes) as file:
        for item in store.items.each(row.id, state=ItemState.FAILED):
            if item.attempts or item.out_offset is None or item.out_length is None:
                continue
            error = _ERROR.decode(read_line(file, item.out_offset, item.out_length)).error
            reason = error.message.partition(f" line {item.line}: ")[2] or error.message
            reason = _ITEM.sub("", reason, count=1)
            key = (error.type, _VARYING.sub("…", reason))
            counts[key] += 1
            first.setdefault(key, reason)
    return [
        ErrorGroup(Outcome.ERRORED, key[0], None, first[key], count) for key, count in counts.most_common(ERROR_GROUPS)
    ]


def batch_as_dict(batch: BatchRow) -> dict[str, Any]:
    """One batch as `batches --json` and the manifest show it."""
    return {
        "batch": batch.number,
        "batch_id": batch.batch_id,
        "state": str(batch.state),
        "provider_status": batch.provider_status,
        "round": batch.round,
        "requests": batch.requests,
        "bytes": batch.size,
        "tokens": batch.tokens,
        "outcomes": {str(outcome): getattr(batch, str(outcome)) for outcome in Outcome},
        "late": batch.late,
        "quarantined": batch.quarantined,
        "submitted_at": stamp_or_none(batch.submitted_at),
        "expires_at": stamp_or_none(batch.expires_at),
        "ended_at": stamp_or_none(batch.ended_at),
        "collected_at": stamp_or_none(batch.collected_at),
        "faults": batch.faults,
    }


def item_as_dict(item: ItemRow, batches: dict[int, BatchRow]) -> dict[str, Any]:
    """One item as `items --json` shows it."""
    batch = None if item.batch is None else batches.get(item.batch)
    return {
        "seq": item.seq,
        "id": item.id,
        "state": shown_state(item, batch),
        "outcome": None if item.outcome is None else str(item.outcome),
        "round": item.round,
        "attempts": item.attempts,
        "batch": item.batch,
        "batch_id": None if batch is None else batch.batch_id,
        "line": item.line,
    }


def shown_state(item: ItemRow, batch: BatchRow | None) -> str:
    """An open item is pending until the batch that holds it was sent."""
    if item.state is not ItemState.OPEN:
        return str(item.state)
    return "pending" if batch is None or batch.state is BatchState.WAITING else "submitted"


def result_lines(ctx_state: Path, row: RunRow, name: str) -> Iterator[bytes]:
    """The recorded lines of results.jsonl or errors.jsonl, in the order they came, in constant memory."""
    end = row.results_bytes if name == "results.jsonl" else row.errors_bytes
    with _recorded(ctx_state, row, name, end) as file:
        while end > 0 and (chunk := file.read(min(end, 1 << 20))):
            end -= len(chunk)
            yield chunk


def ordered_lines(ctx_state: Path, store: Store, row: RunRow, name: str) -> Iterator[bytes]:
    """The same lines in the order of the input."""
    state = ItemState.SUCCEEDED if name == "results.jsonl" else ItemState.FAILED
    end = row.results_bytes if name == "results.jsonl" else row.errors_bytes
    with _recorded(ctx_state, row, name, end) as file:
        for item in store.items.each(row.id, state=state):
            if item.out_offset is not None and item.out_length is not None:
                yield read_line(file, item.out_offset, item.out_length) + b"\n"


@contextmanager
def _recorded(ctx_state: Path, row: RunRow, name: str, end: int) -> Iterator[IO[bytes]]:
    path = OutputFolder(row.out, workdir(ctx_state, row.name)).local / name
    try:
        file = path.open("rb")
    except FileNotFoundError:
        if not end:
            path = Path("/dev/null")
            file = path.open("rb")
        else:
            raise StorageError(
                f"{path} is missing", hint=f"restore it, or `batchctl doctor {row.name}` says what is lost"
            ) from None
    with file:
        yield file


def age_of(batch: BatchRow, now: datetime) -> float | None:
    """Seconds since a batch was submitted, until it ended."""
    if batch.submitted_at is None:
        return None
    return ((batch.ended_at or now) - batch.submitted_at).total_seconds()
