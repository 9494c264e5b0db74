"""How many requests are kept in flight: what the budget, the tokens of an item and the latency ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping

from batchctl.core.limiter import RESOURCES, Amounts

MEMORY = 100  # answers after which the oldest no longer weigh
FIRST_LATENCY = 10.0  # seconds, until some were measured
PRIOR = 40  # answers that the first guess weighs: quick answers come first and tell less than they seem to
PLANS = 10  # answers that the plans of the first requests weigh
ROOM = 3.0  # deviations of what is in flight that the window has room for, lest it holds the pace up
FIRST_SIZE = 4  # while no limit is known: a key that is not valid costs so many calls
ASKED_SIZE = 16  # the same where a person named an upper bound
SMALL = 48  # up to here each answer makes room for one more call
LOAD_EVERY = 0.25  # seconds between two looks at the load
FULL = 0.8  # of a processor, from which this process is the bottleneck
CLOSING = 200  # answers in which the window then closes by two thirds of what it has more than it needs
TRUST = 5_600  # answers after which it does so again; before, for the part of one that there were of these


class Load:
    """How busy this process keeps its processor: when it is the bottleneck, more calls in flight only wait here."""

    def __init__(self) -> None:
        self._at = self._cpu = 0.0
        self.is_full = False

    def look(self, now: float, cpu: float) -> None:
        """Take a look; in quick succession they tell nothing.

        Args:
            now: seconds of any clock.
            cpu: processor seconds this process has used.
        """
        passed = now - self._at
        if passed >= LOAD_EVERY:
            self.is_full = cpu - self._cpu > FULL * passed
            self._at, self._cpu = now, cpu


class Window:
    """The size of the sliding window.

    Args:
        most: upper bound, such as the connections there are.
        asked: a person named it.
    """

    def __init__(self, most: int, *, asked: bool = False) -> None:
        self._most = most
        self._latency = FIRST_LATENCY
        self._means: list[float] | None = None  # of each resource
        self._plans = 0
        self._answers = 0
        self._unlimited = float(ASKED_SIZE if asked else FIRST_SIZE)
        self._full = False
        self._new = 0  # answers that the means do not hold yet
        self._seconds = 0.0  # of those
        self._sums = [0.0] * len(RESOURCES)

    def expect(self, amounts: Amounts) -> None:
        """Take the planned amounts of a request as a first measure, until answers give a better one."""
        self._plans += 1
        means = self._means or [0.0] * len(RESOURCES)
        self._means = [mean + (amount - mean) / self._plans for mean, amount in zip(means, amounts, strict=True)]

    def learn(self, amounts: Amounts, seconds: float, *, full: bool = False) -> None:
        """Take in what an answer used and how long it took; with `full` more in flight would bring no more a second."""
        self._full = full
        self._new += 1
        self._seconds += seconds
        sums = self._sums
        for place, amount in enumerate(amounts):
            sums[place] += amount

    def shrink(self) -> None:
        """Halve the size that is tried while no limit is known; the answer to a refusal for lack of room."""
        self._fold()
        self._unlimited = max(self._unlimited // 2, 1)

    def size(self, limits: Mapping[str, int]) -> int:
        """Requests to keep in flight under limits a minute, at least 1.

        Requests in flight are rate times latency (Little's law), and a little more because latency varies.
        """
        self._fold()
        rates = [
            limits[resource] / 60 / amount
            for resource, amount in zip(RESOURCES, self._means or (), strict=False)
            if amount and resource in limits
        ]
        if not rates:
            return min(int(self._unlimited), self._most)
        needed = min(rates) * self._latency
        return min(max(math.ceil(needed + ROOM * math.sqrt(needed)), 1), self._most)

    def _fold(self) -> None:
        """Let the answers since the last time weigh in the means, together."""
        new = self._new
        if not new:
            return
        self._answers += new
        quick = min(new, max(SMALL - self._unlimited, 0.0))
        if self._full:
            slow = -max(self._unlimited - SMALL, 0.0) * min(new / CLOSING, 1.0)
        else:
            slow = (new - quick) * min(self._answers / TRUST, 1.0)
        self._unlimited = min(self._unlimited + quick + slow, self._most)
        weight = min(new / min(self._answers + PRIOR, MEMORY), 1.0)
        self._latency += (self._seconds / new - self._latency) * weight
        weight = min(new / min(self._answers + min(self._plans, PLANS), MEMORY), 1.0)
        means = self._means or [0.0] * len(RESOURCES)
        self._means = [mean + (total / new - mean) * weight for mean, total in zip(means, self._sums, strict=True)]
        self._new, self._seconds = 0, 0.0
        self._sums = [0.0] * len(RESOURCES)
