"""Keeps several budgets a minute at once: evenly paced, and never more than a limit in any 60 seconds.

Two rules together. The pace (GCRA, a token bucket turned round) lets requests go one after the other at the rate of
the budget, with a burst of a few milliseconds that makes up for late timers. The window counts what was taken during
the last minute exactly, so that large requests cannot add up to more than a limit; what answers say they used replaces
what was planned, and some room is kept for what is not answered yet. Whoever has to wait asks again at the time told;
callers serve their waiters in order.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

MINUTE = 60.0
SLACK = 0.3  # seconds by which the ways of two requests to the provider may differ: 0.5 % of the budget is left
SURPRISE = 3.0  # how much room is kept, in what open requests are expected to exceed their plans together
MEMORY = 0.02  # weight of one answer in that expectation
BURST = 0.05  # seconds of the budget that may go at once; none would lose the lateness of every timer
TOGETHER = 0.005  # seconds of requests that leave the window together
RAMP = 10.0  # seconds until the full pace is back after a pause
RAMP_START = 0.2  # part of the pace right after a pause

Amounts = Mapping[str, int]


class TooLargeError(ValueError):
    """A request that needs more than a whole minute's budget and could wait for ever (field report 125)."""

    def __init__(self, resource: str, amount: int, limit: int) -> None:
        super().__init__(f"the request needs {amount:,} {resource}, more than the limit of {limit:,} a minute")
        self.resource = resource


@dataclass(slots=True)
class _Moment:
    """What was taken within some milliseconds; together it leaves the window, so that memory stays bounded.

    Args:
        at: when the last of it was taken.
        squares: of the plans that are not corrected yet.
    """

    start: float
    at: float
    sums: dict[str, int]
    squares: dict[str, int]
    counted: bool = True  # still inside the window


@dataclass(slots=True)
class Taken:
    """What one request took from the budgets."""

    amounts: dict[str, int]
    moment: _Moment
    open: bool = True  # not corrected yet


class Limiter:
    """Budgets a minute, by resource; a resource without a limit is counted but never waited for.

    Times are seconds of any monotonic clock.
    """

    def __init__(self, limits: Amounts) -> None:
        self._limits = dict(limits)
        self._pace = 1.0
        self._rates = {resource: limit / (MINUTE + SLACK) for resource, limit in limits.items()}
        self._due: dict[str, float] = {}  # by when all that was taken is paid for at the pace
        self._sums: dict[str, int] = {}  # taken inside the window
        self._window: deque[_Moment] = deque()
        self._squares: dict[str, int] = {}  # of the plans that are inside the window and not corrected yet
        self._excess: dict[str, float] = {}  # mean square of the part by which answers exceeded their plan
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
            ready = max(ready, self._due.get(resource, ready) - BURST)
            excess = self._sums.get(resource, 0) + amount + self._kept_free(resource, amount) - limit
            if excess > 0 and self._window:
                ready = max(ready, self._freed_at(resource, excess))
        return ready

    def take(self, now: float, amounts: Amounts) -> Taken:
        """Count a request that goes now."""
        moment = self._window[-1] if self._window else None
        if moment is None or now - moment.start > TOGETHER:
            moment = _Moment(now, now, {}, {})
            self._window.append(moment)
        moment.at = now
        taken = Taken(dict(amounts), moment)
        for resource, amount in amounts.items():
            for sums, squares in ((self._sums, self._squares), (moment.sums, moment.squares)):
                sums[resource] = sums.get(resource, 0) + amount
                squares[resource] = squares.get(resource, 0) + amount * amount
            self._owe(resource, now, amount)
        return taken

    def correct(self, now: float, taken: Taken, actual: Amounts) -> None:
        """Replace what was planned for a request by what it used; resources not named stay as planned."""
        self._close(taken)
        for resource, amount in actual.items():
            plan = taken.amounts.get(resource, 0)
            change = amount - plan
            taken.amounts[resource] = amount
            if plan:
                known = self._excess.get(resource, 0.0)
                self._excess[resource] = known + ((max(change, 0) / plan) ** 2 - known) * MEMORY
            if taken.moment.counted:
                for sums in (self._sums, taken.moment.sums):
                    sums[resource] = sums.get(resource, 0) + change
            self._owe(resource, now, change)

    def pause(self, until: float) -> None:
        """Let nothing go before `until`, then come back slowly."""
        self._paused_until = max(self._paused_until, until)

    def set_limit(self, resource: str, per_minute: int) -> None:
        """Set or change a limit; it holds at once, also for what was taken before."""
        self._limits[resource] = per_minute
        self._rates[resource] = per_minute / (MINUTE + SLACK) * self._pace

    def set_pace(self, part: float) -> None:
        """Go at a part of the limits (above 0, at most 1) without changing what counts as too large."""
        self._pace = part
        self._rates = {resource: limit / (MINUTE + SLACK) * part for resource, limit in self._limits.items()}

    def _forget(self, now: float) -> None:
        while self._window and self._window[0].at + MINUTE + SLACK <= now:
            old = self._window.popleft()
            old.counted = False
            for resource, amount in old.sums.items():
                self._sums[resource] -= amount
            for resource, square in old.squares.items():
                self._squares[resource] -= square

    def _close(self, taken: Taken) -> None:
        if taken.open and taken.moment.counted:
            for resource, amount in taken.amounts.items():
                self._squares[resource] -= amount * amount
                taken.moment.squares[resource] -= amount * amount
        taken.open = False

    def _kept_free(self, resource: str, amount: int) -> float:
        """Room for what open requests and the next may use above their plans; surprises add up as squares."""
        expected = self._excess.get(resource)
        if not expected:
            return 0.0
        return SURPRISE * math.sqrt(expected * (self._squares.get(resource, 0) + amount * amount))

    def _freed_at(self, resource: str, excess: float) -> float:
        """When so much of the window is over that `excess` has left it."""
        moment = self._window[0]
        for moment in self._window:
            excess -= moment.sums.get(resource, 0)
            if excess <= 0:
                break
        return moment.at + MINUTE + SLACK

    def _owe(self, resource: str, now: float, amount: int) -> None:
        rate = self._rates.get(resource)
        if rate is None or not amount:
            return
        since_pause = now - self._paused_until
        if since_pause < RAMP:
            rate *= RAMP_START + (1 - RAMP_START) * max(since_pause, 0.0) / RAMP
        seconds = amount / rate
        due = self._due.get(resource, now)
        # Seconds that passed unused just before a request count as paid, or one that waited for the window would
        # wait twice.
        self._due[resource] = max(due + seconds, now) if amount > 0 else due + seconds
