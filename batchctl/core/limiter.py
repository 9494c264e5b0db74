"""Keeps several budgets a minute at once: evenly paced, and never more than a limit in any 60 seconds.

Two rules together. The pace (GCRA, a token bucket turned round) lets requests go one after the other at the rate of
the budget, with a burst of a few milliseconds that makes up for late timers. The window counts what was taken during
the last minute exactly, so that large requests cannot add up to more than a limit; what answers say they used replaces
what was planned, and some room is kept for what is not answered yet. Whoever has to wait asks again at the time told;
callers serve their waiters in order.

All of this runs several times for each request, so what it touches are attributes and lists, not mappings.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

MINUTE = 60.0
SLACK = 0.3  # seconds by which the ways of two requests to the provider may differ: 0.5 % of the budget is left
SURPRISE = 3.0  # how much room is kept, in what open requests are expected to exceed their plans together
MEMORY = 0.02  # weight of one answer in that expectation
BURST = 0.05  # seconds of the budget that may go at once; none would lose the lateness of every timer
TOGETHER = 0.01  # seconds of requests that leave the window together
RAMP = 10.0  # seconds until the full pace is back after a pause
RAMP_START = 0.2  # part of the pace right after a pause


class Amounts(NamedTuple):
    """What one request takes of each budget."""

    requests: int = 0
    tokens: int = 0
    output: int = 0  # output tokens, where a provider limits them apart


RESOURCES = Amounts._fields


class TooLargeError(ValueError):
    """A request that needs more than a whole minute's budget and could wait for ever (field report 125)."""

    def __init__(self, resource: str, amount: int, limit: int) -> None:
        super().__init__(f"the request needs {amount:,} {resource}, more than the limit of {limit:,} a minute")
        self.resource = resource


class _Moment:
    """What was taken within some milliseconds; together it leaves the window, so that memory stays bounded.

    Attributes:
        at: when the last of it was taken.
        sums: of each resource.
        counted: still inside the window.
    """

    __slots__ = ("at", "counted", "start", "sums")

    def __init__(self, now: float) -> None:
        self.start = self.at = now
        self.sums = [0] * len(RESOURCES)
        self.counted = True


class Taken:
    """What one request took from the budgets.

    Attributes:
        open: not corrected yet.
    """

    __slots__ = ("amounts", "moment", "open")

    def __init__(self, amounts: Amounts, moment: _Moment) -> None:
        self.amounts = amounts
        self.moment = moment
        self.open = True


class _Budget:
    """One resource.

    Attributes:
        place: among the resources.
        limit: a minute, None while it is not known.
        rate: of the pace, a second; 0 while no limit is known.
        due: by when all that was taken is paid for at the pace; 0 before anything was.
        sum: taken inside the window.
        squares: of the plans that are not corrected yet.
        excess: mean square of the part by which answers exceeded their plan.
    """

    __slots__ = ("due", "excess", "limit", "name", "place", "rate", "squares", "sum")

    def __init__(self, place: int, limit: int | None) -> None:
        self.place = place
        self.name = RESOURCES[place]
        self.limit = limit
        self.rate = 0.0
        self.due = 0.0
        self.sum = 0
        self.squares = 0
        self.excess = 0.0

    def follow(self, pace: float) -> None:
        """Go at a part of the limit."""
        self.rate = (self.limit or 0) / (MINUTE + SLACK) * pace

    def kept_free(self, amount: int) -> float:
        """Room for what open requests and the next may use above their plans; surprises add up as squares."""
        return SURPRISE * math.sqrt(self.excess * (self.squares + amount * amount))


class Limiter:
    """Budgets a minute, by resource; a resource without a limit is counted but never waited for.

    Times are seconds of any monotonic clock.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._pace = 1.0
        self._budgets = [_Budget(place, limits.get(name)) for place, name in enumerate(RESOURCES)]
        self._window: deque[_Moment] = deque()
        self._paused_until = float("-inf")
        self.set_pace(1.0)

    def ready_at(self, now: float, amounts: Amounts) -> float:
        """When a request of these amounts may go; `now` means at once, with `take`.

        Raises:
            TooLargeError: it needs more than a whole minute of a budget.
        """
        window = self._window
        if window and window[0].at + MINUTE + SLACK <= now:
            self._forget(now)
        ready = max(now, self._paused_until)
        for budget in self._limited:
            amount, limit = amounts[budget.place], budget.limit
            if limit is None or not amount:
                continue
            if amount > limit:
                raise TooLargeError(budget.name, amount, limit)
            if budget.due > ready:
                ready = max(ready, budget.due - BURST)
            lacking: float = budget.sum + amount - limit
            if budget.excess:
                lacking += budget.kept_free(amount)
            if lacking > 0 and window:
                ready = max(ready, self._freed_at(budget.place, lacking))
        return ready

    def take(self, now: float, amounts: Amounts) -> Taken:
        """Count a request that goes now."""
        window = self._window
        if not window or now - window[-1].start > TOGETHER:
            window.append(_Moment(now))
        moment = window[-1]
        moment.at = now
        sums = moment.sums
        for budget, amount in zip(self._budgets, amounts, strict=True):
            if amount:
                sums[budget.place] += amount
                budget.sum += amount
                budget.squares += amount * amount
                if budget.rate:
                    self._owe(budget, now, amount)
        return Taken(amounts, moment)

    def correct(self, now: float, taken: Taken, actual: Amounts) -> None:
        """Replace what was planned for a request by what it used."""
        moment = taken.moment
        for budget, plan, amount in zip(self._budgets, taken.amounts, actual, strict=True):
            if taken.open:
                budget.squares -= plan * plan
            change = amount - plan
            if plan:
                surprise = (change / plan) ** 2 if change > 0 else 0.0
                budget.excess += (surprise - budget.excess) * MEMORY
            if change:
                if moment.counted:
                    budget.sum += change
                    moment.sums[budget.place] += change
                if budget.rate:
                    self._owe(budget, now, change)
        taken.amounts, taken.open = actual, False

    def lose(self, taken: Taken) -> None:
        """No answer will say what a request used: what was planned counts."""
        if taken.open:
            taken.open = False
            for budget, plan in zip(self._budgets, taken.amounts, strict=True):
                budget.squares -= plan * plan

    def pause(self, until: float) -> None:
        """Let nothing go before `until`, then come back slowly."""
        self._paused_until = max(self._paused_until, until)

    def set_limit(self, resource: str, per_minute: int) -> None:
        """Set or change a limit; it holds at once, also for what was taken before."""
        self._budgets[RESOURCES.index(resource)].limit = per_minute
        self.set_pace(self._pace)

    def set_pace(self, part: float) -> None:
        """Go at a part of the limits (above 0, at most 1) without changing what counts as too large."""
        self._pace = part
        for budget in self._budgets:
            budget.follow(part)
        self._limited = [budget for budget in self._budgets if budget.limit is not None]

    def _forget(self, now: float) -> None:
        while self._window and self._window[0].at + MINUTE + SLACK <= now:
            old = self._window.popleft()
            old.counted = False
            for budget, amount in zip(self._budgets, old.sums, strict=True):
                budget.sum -= amount

    def _freed_at(self, place: int, lacking: float) -> float:
        """When so much of the window is over that what is lacking has left it."""
        moment = self._window[0]
        for moment in self._window:
            lacking -= moment.sums[place]
            if lacking <= 0:
                break
        return moment.at + MINUTE + SLACK

    def _owe(self, budget: _Budget, now: float, amount: int) -> None:
        rate = budget.rate
        since_pause = now - self._paused_until
        if since_pause < RAMP:
            rate *= RAMP_START + (1 - RAMP_START) * max(since_pause, 0.0) / RAMP
        due = (budget.due or now) + amount / rate
        # Seconds that passed unused just before a request count as paid, or one that waited for the window would
        # wait twice.
        budget.due = now if amount > 0 and due < now else due
