"""What the store says of a run, read at one moment where that is possible, for its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import accumulate

from batchctl.runs.reading import error_groups, run_named
from batchctl.state.rows import BatchRow, ErrorGroup, RunRow
from batchctl.state.store import Store

POINTS = 240  # in time; three pixels or so each
PAGE = 5_000
READS = 3


@dataclass(frozen=True, slots=True)
class Facts:
    """A run and what hangs on it.

    Args:
        end: where the time axes end: when the run finished, or now.
        failed_at: items that failed for good, by point in time.
        still: nothing was recorded while this was read, so that every figure is of the same moment.
    """

    row: RunRow
    batches: list[BatchRow]
    outcomes: dict[str, int]
    errors: list[ErrorGroup]
    end: datetime
    failed_at: Counter[int] = field(default_factory=Counter)
    still: bool = True

    @property
    def span(self) -> float:
        """Seconds the run took, or has taken so far."""
        return max((self.end - self.row.created_at).total_seconds(), 1.0)

    def since_start(self, moment: datetime) -> float:
        """Seconds from the run's start, on its axis also where the clock was set back since."""
        return min(max((moment - self.row.created_at).total_seconds(), 0.0), self.span)

    def point(self, moment: datetime) -> int:
        """The point in time a moment belongs to: the first one that is not before it."""
        return -int(-POINTS * self.since_start(moment) // self.span)

    def settled(self) -> list[tuple[float, int, int]]:
        """How many items had succeeded and failed at each point, as (seconds, succeeded, failed).

        A batch's answers count from when they were collected. Answers of the sync lane have no time.
        """
        succeeded: Counter[int] = Counter()
        for batch in self.batches:
            succeeded[self.point(batch.collected_at or batch.ended_at or self.end)] += batch.succeeded
        points = range(POINTS + 1)
        done = accumulate(succeeded[at] for at in points)
        failed = accumulate(self.failed_at[at] for at in points)
        return list(zip((at * self.span / POINTS for at in points), done, failed, strict=True))


def read_facts(store: Store, name: str, now: datetime) -> Facts:
    """Read until nothing was recorded meanwhile, or say that something was.

    Raises:
        InputError: there is no such run.
    """
    for _ in range(READS):
        facts = _read(store, run_named(store, name), now)
        if run_named(store, name) == facts.row:
            return facts
    return replace(facts, still=False)


def _read(store: Store, row: RunRow, now: datetime) -> Facts:
    batches = store.batches.all(row.id)
    moments = [moment for batch in batches for moment in (batch.ended_at, batch.collected_at) if moment]
    end = max([row.finished_at or now, *moments])
    facts = Facts(row, batches, store.runs.outcomes(row.id), error_groups(store, row), end)
    facts.failed_at.update(facts.point(moment) for moment in _failures(store, row))
    return facts


def _failures(store: Store, row: RunRow) -> Iterator[datetime]:
    """When each failed item was settled; records that were refused unsent were at the start."""
    sent = after = 0
    while row.failed and (found := store.items.last_errors(row.id, after_seq=after, limit=PAGE)):
        after = found[-1].seq
        sent += len(found)
        yield from (attempt.at for attempt in found)
    for _ in range(row.failed - sent):
        yield row.created_at
