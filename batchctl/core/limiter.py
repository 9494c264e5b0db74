"""Keeps several budgets a minute at once: evenly paced, and never more than a limit in any 60 seconds.

Two rules together. The pace (GCRA, a token bucket turned round) lets requests go one after the other at the rate of
the budget, with a burst of a few milliseconds that makes up for late timers. The window counts what was taken during
the last minute exactly, corrected by what answers say they used, so that neither odd sizes nor wrong estimates can
add up to more than a limit. Whoever waits asks again at the time told: callers serve their waiters in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

MINUTE = 60.0
SLACK = 0.3  # seconds by which the ways of two requests to the provider may differ: 0.5 % of the budget is left
BURST = 0.05  # seconds of the budget that may go at once; none would lose the lateness of every timer
RAMP = 10.0  # seconds until the full pace is back after a pause
RAMP_START = 0.2  # part of the pace right after a pause

Amounts = Mapping[str, int]


class TooLargeError(ValueError):
    """A request that needs more than a whole minute's budget and could wait for ever (field report 125)."""

    def __init__(self, resource: str, amount: int, limit: int) -> None:
        super().__init__(f"the request needs {amount:,} {resource}, more than the limit of {limit:,} a minute")
        self.resource = resource


@dataclass(slots=True)
class Taken:
    """What one request took from the budgets."""

    at: float
    amounts: dict[str, int]
    counted: bool = True  # still inside the window


class Limiter:
    """Budgets a minute, by resource; a resource without a limit is counted but never waited for.

    Times are seconds of any monotonic clock.
    """

    def __init__(self, limits: Amounts) -> None:
        self._limits = dict(limits)
        self._pace = 1.0
        self._due: dict[str, float] = {}  # by when all that was taken is paid for at the pace
        self._sums: dict[str, int] = {}  # taken inside the window
        self._window: deque[Taken] = deque()
        self._paused_until = float("-inf")

    def ready_at(self, now: float, amounts: Amounts) -> float:
        """When a request of these amounts may go; `now` means at once, with `take`.

        Raises:
            TooLargeError: it needs more than a whole minute of a budget.
        """
        self._forget(now)
        ready = max(now, self._paused_until)
        for resource, amount in amounts.items():
            limit = self._limits.get(resource)
            if limit is None or not amount:
                continue
            if amount > limit:
                raise TooLargeError(resource, amount, limit)
            excess = self._sums.get(resource, 0) + amount - limit
            ready = max(ready, self._due.get(resource, ready) - BURST, self._freed_at(resource, excess, ready))
        return ready

    def take(self, now: float, amounts: Amounts) -> Taken:
        """Count a request that goes now."""
        taken = Taken(now, dict(amounts))
        self._window.append(taken)
        for resource, amount in amounts.items():
            self._sums[resource] = self._sums.get(resource, 0) + amount
            self._owe(resource, now, amount)
        return taken

    def correct(self, now: float, taken: Taken, actual: Amounts) -> None:
        """Replace what was planned for a request by what it used; resources not named stay as planned."""
        for resource, amount in actual.items():
            change = amount - taken.amounts.get(resource, 0)
            taken.amounts[resource] = amount
            if taken.counted:
                self._sums[resource] = self._sums.get(resource, 0) + change
            self._owe(resource, now, change)

    def pause(self, until: float) -> None:
        """Let nothing go before `until`, then come back slowly."""
        self._paused_until = max(self._paused_until, until)

    def set_limit(self, resource: str, per_minute: int) -> None:
        """Set or change a limit; it holds at once, also for what was taken before."""
        self._limits[resource] = per_minute

    def set_pace(self, part: float) -> None:
        """Go at a part of the limits (above 0, at most 1) without changing what counts as too large."""
        self._pace = part

    def _forget(self, now: float) -> None:
        while self._window and self._window[0].at + MINUTE + SLACK <= now:
            old = self._window.popleft()
            old.counted = False
            for resource, amount in old.amounts.items():
                self._sums[resource] -= amount

    def _freed_at(self, resource: str, excess: int, otherwise: float) -> float:
        """When so much of the window is over that `excess` has left it."""
        freed = otherwise
        for taken in self._window:
            if excess <= 0:
                break
            excess -= taken.amounts.get(resource, 0)
            freed = taken.at + MINUTE + SLACK
        return freed

    def _owe(self, resource: str, now: float, amount: int) -> None:
        limit = self._limits.get(resource)
        if limit is None or not amount:
            return
        rate = limit / (MINUTE + SLACK) * self._pace * self._ramp(now)
        start = self._due.get(resource, now)
        self._due[resource] = (max(start, now) if amount > 0 else start) + amount / rate

    def _ramp(self, now: float) -> float:
        return min(1.0, RAMP_START + (1 - RAMP_START) * max(now - self._paused_until, 0) / RAMP)
