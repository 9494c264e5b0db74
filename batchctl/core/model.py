"""The words of the product as types, and the moves allowed between states.

Every state change in the store is one conditional update whose allowed sources come from here, so a
transition that is not listed cannot happen.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RunState(StrEnum):
    """Where a run stands."""

    PLANNING = "planning"  # rows are being loaded; nothing was sent; purged if its process dies
    OPEN = "open"
    DONE = "done"  # every item is in results.jsonl or errors.jsonl
    STOPPED = "stopped"  # a systemic error; the same command goes on
    CANCELED = "canceled"  # asked to stop; what batches still answer is collected


class ItemState(StrEnum):
    """Where an item stands; which send it waits on is told by its batch."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class BatchState(StrEnum):
    """Where a batch stands."""

    WAITING = "waiting"  # packed, and surely not at the provider
    SUBMITTING = "submitting"  # intent committed; a create may have happened
    UNKNOWN = "unknown"  # settling could not tell; a person must
    IN_PROGRESS = "in_progress"
    CANCELING = "canceling"
    ENDED = "ended"  # the provider is finished with it; its answers are not all here yet
    COLLECTED = "collected"
    REJECTED = "rejected"  # refused whole before any work began; its items are elsewhere
    WITHDRAWN = "withdrawn"  # taken apart while it waited (halved, or moved to the sync lane)
    ABANDONED = "abandoned"  # a person gave it up: its items moved on, a late answer is still taken


IN_DOUBT = frozenset({BatchState.SUBMITTING, BatchState.UNKNOWN})
"""Batches whose create may have happened without its id being known."""

RUNNING = frozenset({BatchState.IN_PROGRESS, BatchState.CANCELING})
"""Batches the provider works on; with those in doubt, what counts against its queue limits."""

MAY_ANSWER = IN_DOUBT | RUNNING | {BatchState.ENDED}
"""Batches that may still answer, and cost, for the items they hold."""

FOLLOWED = RUNNING | {BatchState.ENDED, BatchState.ABANDONED}
"""Batches that are looked at: they have an id, and answers that are not all here yet."""


class CancelCause(StrEnum):
    """Why we asked for a batch to be canceled; it decides what its unfinished requests count as."""

    ASKED = "asked"  # `cancel`: they are canceled
    DEADLINE = "deadline"  # it was late: they are expired and may go again


class Outcome(StrEnum):
    """What became of an attempt."""

    SUCCEEDED = "succeeded"
    ERRORED = "errored"
    EXPIRED = "expired"
    CANCELED = "canceled"
    MISSING = "missing"
    INVALID = "invalid"


class Lane(StrEnum):
    """The way a request is sent."""

    BATCH = "batch"
    SYNC = "sync"


BATCH_MOVES: dict[BatchState, frozenset[BatchState]] = {
    BatchState.WAITING: frozenset({BatchState.SUBMITTING, BatchState.WITHDRAWN}),
    BatchState.SUBMITTING: frozenset(
        {BatchState.IN_PROGRESS, BatchState.WAITING, BatchState.UNKNOWN, BatchState.REJECTED}
    ),
    BatchState.UNKNOWN: frozenset({BatchState.IN_PROGRESS, BatchState.WAITING}),
    BatchState.IN_PROGRESS: frozenset(
        {BatchState.CANCELING, BatchState.ENDED, BatchState.REJECTED, BatchState.WAITING, BatchState.ABANDONED}
    ),
    BatchState.CANCELING: frozenset({BatchState.ENDED, BatchState.REJECTED, BatchState.ABANDONED}),
    BatchState.ENDED: frozenset({BatchState.COLLECTED, BatchState.UNKNOWN, BatchState.ABANDONED}),
    BatchState.ABANDONED: frozenset({BatchState.COLLECTED}),
    BatchState.COLLECTED: frozenset(),
    BatchState.REJECTED: frozenset(),
    BatchState.WITHDRAWN: frozenset(),
}
"""Which states a batch may move to. IN_PROGRESS goes back to WAITING only when the provider refused it whole
for lack of queue room (nothing ran, nothing is billed, so no round is spent)."""

RUN_MOVES: dict[RunState, frozenset[RunState]] = {
    RunState.PLANNING: frozenset({RunState.OPEN}),
    RunState.OPEN: frozenset({RunState.DONE, RunState.STOPPED, RunState.CANCELED}),
    RunState.STOPPED: frozenset({RunState.OPEN, RunState.DONE, RunState.CANCELED}),
    RunState.CANCELED: frozenset(),
    RunState.DONE: frozenset({RunState.OPEN}),
}
"""Which states a run may move to. DONE opens again only when a person asks to send failed items once more."""


def batch_sources(target: BatchState) -> tuple[BatchState, ...]:
    """The states from which a batch may move to `target`, for the WHERE of a conditional update."""
    return tuple(state for state, targets in BATCH_MOVES.items() if target in targets)


def run_sources(target: RunState) -> tuple[RunState, ...]:
    """The states from which a run may move to `target`."""
    return tuple(state for state, targets in RUN_MOVES.items() if target in targets)


@dataclass(slots=True, unsafe_hash=True)  # one per result: frozen costs three times as much to make
class Usage:
    """Tokens of one answer; `input_tokens` is the total, cache reads and writes included."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0


class ErrorKind(StrEnum):
    """What an item's error asks for."""

    RETRYABLE = "retryable"  # the same request may succeed later
    PERMANENT = "permanent"  # the same request will fail again
    SYSTEMIC = "systemic"  # the account or run is at fault: stop, leave items open


@dataclass(frozen=True, slots=True)
class ItemError:
    """Why an attempt failed, with the deepest message the provider gave."""

    type: str
    message: str
    kind: ErrorKind
    code: str | None = None


@dataclass(slots=True)  # one per result: frozen costs three times as much to make
class Answer:
    """What a provider said about one request, in either lane.

    `text` is the raw answer (also of a refused or truncated one); `stop_reason` the provider's own word.
    """

    custom_id: str
    outcome: Outcome
    text: str | None = None
    stop_reason: str | None = None
    model: str | None = None
    usage: Usage | None = None
    error: ItemError | None = None
