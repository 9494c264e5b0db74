"""The rows the store takes and gives, and the edge between Python values and what SQLite keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from batchctl.core.model import BatchState, CancelCause, ItemState, Lane, Outcome, RunState, Usage

ERROR_MESSAGE_CHARS = 2_000

NewItem = tuple[
    int, str | None, int, int, int | None, int | None, int, int | None, str, str | None, int | None, int | None
]
"""(seq, id, line, source, offset, length, tokens, batch, state, outcome, out_offset, out_length) for `items.add`."""


def stamp(moment: datetime) -> str:
    """A moment as RFC 3339 UTC text with milliseconds, which sorts as it reads.

    Raises:
        ValueError: the moment has no time zone.
    """
    if moment.tzinfo is None:
        raise ValueError("a moment without a time zone")
    utc = moment.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H:%M:%S}.{utc.microsecond // 1000:03d}Z"


def stamp_or_none(moment: datetime | None) -> str | None:
    """`stamp`, where there may be no moment."""
    return None if moment is None else stamp(moment)


def moment(text: str) -> datetime:
    """The moment a stored text tells."""
    return datetime.fromisoformat(text)


def moment_or_none(text: str | None) -> datetime | None:
    """`moment`, where there may be no text."""
    return None if text is None else datetime.fromisoformat(text)


def to_json(value: Any) -> str:
    """A JSON-ready value as compact text."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run and its counters."""

    id: int
    name: str
    token: str
    state: RunState
    provider: str
    endpoint: str
    model: str
    settings: dict[str, Any]
    fingerprint: str
    inputs: list[Any]
    out: str
    home: str
    planned: int
    succeeded: int
    failed: int
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    cost_usd: float
    unpriced: int
    results_bytes: int
    errors_bytes: int
    needs: str | None
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None

    @property
    def open(self) -> int:
        """Items that are in neither file yet."""
        return self.planned - self.succeeded - self.failed


RUN_COLUMNS = ", ".join(RunRow.__slots__)


def run_row(row: tuple[Any, ...]) -> RunRow:
    """A run from its columns, in the order of `RUN_COLUMNS`."""
    values = dict(zip(RunRow.__slots__, row, strict=True))
    values["state"] = RunState(values["state"])
    values["settings"] = json.loads(values["settings"])
    values["inputs"] = json.loads(values["inputs"])
    values["created_at"] = moment(values["created_at"])
    values["updated_at"] = moment(values["updated_at"])
    values["finished_at"] = moment_or_none(values["finished_at"])
    return RunRow(**values)


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A batch, its counters and what the provider last said."""

    run_id: int
    number: int
    round: int
    state: BatchState
    requests: int
    size: int
    tokens: int
    first_seq: int
    last_seq: int
    key: str | None
    intent_at: datetime | None
    address: str | None
    key_hint: str | None
    fence: str | None
    sends: int
    file_id: str | None
    batch_id: str | None
    certain: bool
    provider_status: str | None
    provider_counts: Mapping[str, int]
    submitted_at: datetime | None
    expires_at: datetime | None
    ended_at: datetime | None
    collected_at: datetime | None
    next_check_at: datetime | None
    stalls_at: datetime | None
    not_before: datetime | None
    check_failures: int
    refusals: int
    lost: int
    looks: int
    cancel_cause: CancelCause | None
    succeeded: int
    errored: int
    expired: int
    canceled: int
    missing: int
    invalid: int
    quarantined: int
    late: int
    faults: list[dict[str, Any]]


BATCH_COLUMNS = ", ".join(BatchRow.__slots__)
BATCH_TIMES = tuple(name for name in BatchRow.__slots__ if name.endswith("_at") or name == "not_before")


def batch_row(row: tuple[Any, ...]) -> BatchRow:
    """A batch from its columns, in the order of `BATCH_COLUMNS`."""
    values = dict(zip(BatchRow.__slots__, row, strict=True))
    values["state"] = BatchState(values["state"])
    values["certain"] = bool(values["certain"])
    values["cancel_cause"] = values["cancel_cause"] and CancelCause(values["cancel_cause"])
    values["provider_counts"] = json.loads(values["provider_counts"])
    values["faults"] = json.loads(values["faults"])
    for name in BATCH_TIMES:
        values[name] = moment_or_none(values[name])
    return BatchRow(**values)


class Load(NamedTuple):
    """Open batches and what they hold."""

    batches: int
    requests: int
    tokens: int


class ItemRow(NamedTuple):
    """An item. A named tuple, because millions pass and a frozen dataclass takes three times as long to make."""

    seq: int
    id: str | None
    line: int
    source: int
    offset: int | None
    length: int | None
    tokens: int
    batch: int | None
    round: int
    attempts: int
    state: ItemState
    outcome: Outcome | None
    out_offset: int | None
    out_length: int | None


ITEM_COLUMNS = ", ".join(ItemRow._fields)
_ITEM_STATES = {state.value: state for state in ItemState}
_OUTCOMES: dict[str | None, Outcome | None] = {None: None, **{outcome.value: outcome for outcome in Outcome}}


def item_row(row: tuple[Any, ...]) -> ItemRow:
    """An item from its columns, in the order of `ITEM_COLUMNS`."""
    return ItemRow._make((*row[:10], _ITEM_STATES[row[10]], _OUTCOMES[row[11]], *row[12:]))


class Member(NamedTuple):
    """An open item as packing and sending need it."""

    seq: int
    id: str
    offset: int
    length: int
    tokens: int
    round: int
    attempts: int


MEMBER_COLUMNS = ", ".join(Member._fields)


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt that did not succeed.

    `outcome` None is a sending whose item was meanwhile settled by a late answer of an older one.
    """

    seq: int
    number: int
    lane: Lane
    batch: int | None
    round: int
    outcome: Outcome | None
    error_type: str | None
    error_code: str | None
    error_message: str | None
    at: datetime


ATTEMPT_COLUMNS = ", ".join(AttemptRow.__slots__)


def attempt_row(row: tuple[Any, ...]) -> AttemptRow:
    """An attempt from its columns, in the order of `ATTEMPT_COLUMNS`."""
    seq, number, lane, batch, round_, outcome, error_type, code, message, at = row
    return AttemptRow(seq, number, Lane(lane), batch, round_, _OUTCOMES[outcome], error_type, code, message, moment(at))


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failed items that share their last error."""

    outcome: Outcome
    error_type: str | None
    error_code: str | None
    error_message: str | None
    count: int


@dataclass(frozen=True, slots=True)
class EventRow:
    """One thing that happened."""

    id: int
    run_id: int | None
    batch: int | None
    at: datetime
    level: int
    kind: str
    text: str
    data: dict[str, Any]


@dataclass(slots=True)  # one per answer: frozen costs three times as much to make
class Success:
    """An item's answer, already in results.jsonl at `out_offset` for `out_length` bytes."""

    seq: int
    out_offset: int
    out_length: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An attempt that did not succeed.

    Args:
        final: the item fails for good and its line is in errors.jsonl at `out_offset`; else it is pending again.
        spends_round: whether going back to pending uses up one of the item's resubmissions.
    """

    seq: int
    outcome: Outcome
    error_type: str | None = None
    error_code: str | None = None
    message: str | None = None
    final: bool = False
    out_offset: int | None = None
    out_length: int | None = None
    spends_round: bool = True


@dataclass(slots=True)
class Totals:
    """Tokens and cost of some answers; `unpriced` counts those without a known price."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cost_usd: float = 0.0
    unpriced: int = 0

    def add(self, usage: Usage, cost: float | None) -> None:
        """Add one answer."""
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cached_input_tokens += usage.cached_input_tokens
        self.cost_usd += cost or 0.0
        self.unpriced += cost is None
