"""Many schedules side by side, and the shrinking report of the first violation."""

from __future__ import annotations

import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.torture.checking import Problem
from tests.torture.playing import Played, play
from tests.torture.processes import preload
from tests.torture.schedules import Schedule, make_schedule

SHRINKS = 60  # smaller schedules tried at most
LOG_LINES = 60


@dataclass
class Totals:
    """What a campaign did."""

    schedules: int = 0
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    bad: list[Played] = field(default_factory=list)

    def __str__(self) -> str:
        parts = ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items()))
        return f"{self.schedules:,} schedules in {self.seconds:.0f} s: {parts}; {len(self.bad)} with violations"


def run_campaign(seeds: Iterable[int], *, workers: int = 2, patience: int = 5) -> Totals:
    """Play the schedules of these seeds; stops early after `patience` bad ones."""
    preload()
    totals = Totals()
    started = time.monotonic()
    context = multiprocessing.get_context("fork")
    with context.Pool(workers) as pool:
        for played in pool.imap_unordered(play_seed, seeds):
            totals.schedules += 1
            totals.counts += played.counts
            if played.problems:
                totals.bad.append(played)
                sys.stderr.write(f"seed {played.schedule.seed}: {played.problems[0]}\n")
            if totals.schedules % 100 == 0:
                totals.seconds = time.monotonic() - started
                sys.stderr.write(f"{totals}\n")
            if len(totals.bad) >= patience:
                pool.terminate()
                break
    totals.seconds = time.monotonic() - started
    return totals


def play_seed(seed: int) -> Played:
    """Play one seed; an error of the campaign itself is a problem too."""
    return _safely(make_schedule(seed))


def _safely(schedule: Schedule) -> Played:
    try:
        return play(schedule)
    except Exception:  # noqa: BLE001  # shown, with the seed that led to it
        return Played(schedule, [Problem("campaign", traceback.format_exc())])


def shrink(bad: Played) -> Played:
    """The smallest schedule found that shows the same kind of problem."""
    kind = bad.problems[0].kind
    best = bad
    tries = SHRINKS
    progress = True
    while progress and tries:
        progress = False
        for smaller in best.schedule.smaller():
            if not tries:
                break
            tries -= 1
            played = _safely(smaller)
            if any(problem.kind == kind for problem in played.problems):
                best, progress = played, True
                break
    return best


def report(bad: Played) -> Iterator[str]:
    """A violation as a person reads it: the smallest schedule, what is wrong, and the end of what was said."""
    smallest = shrink(bad)
    yield smallest.schedule.describe()
    yield from (f"VIOLATION {problem.kind}: {problem.text}" for problem in smallest.problems)
    yield "what the commands said:"
    yield from smallest.log.split("\n")[-LOG_LINES:]
