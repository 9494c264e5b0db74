"""How many requests are kept in flight: what the budget, the tokens of an item and the latency ask for."""

from __future__ import annotations

import math
from collections.abc import Mapping

MEMORY = 100  # answers after which the oldest no longer weigh
FIRST_LATENCY = 10.0  # seconds, until some were measured
PRIOR = 10  # answers that the first guess weighs: quick answers come first and tell less than they seem to
ROOM = 3.0  # deviations of what is in flight that the window has room for, lest it holds the pace up
FIRST_SIZE = 16  # while no limit is known


class Window:
    """The size of the sliding window.

    Args:
        most: upper bound, such as the connections there are.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._latency = FIRST_LATENCY
        self._amounts: dict[str, float] = {}
        self._answers = 0
        self._unlimited = FIRST_SIZE

    def expect(self, amounts: Mapping[str, int]) -> None:
        """Take the planned amounts of a request as a first measure, until an answer gives a better one."""
        if not self._amounts:
            self._amounts = {resource: float(amount) for resource, amount in amounts.items()}

    def learn(self, amounts: Mapping[str, int], seconds: float) -> None:
        """Take in what an answer used and how long it took."""
        self._answers += 1
        self._latency += (seconds - self._latency) / min(self._answers + PRIOR, MEMORY)
        weight = 1 / min(self._answers, MEMORY)
        for resource, amount in amounts.items():
            known = self._amounts.get(resource, float(amount))
            self._amounts[resource] = known + (amount - known) * weight
        self._unlimited = min(self._unlimited + 1, self._most)

    def shrink(self) -> None:
        """Halve the size that is tried while no limit is known; the answer to a refusal for lack of room."""
        self._unlimited = max(self._unlimited // 2, 1)

    def size(self, limits: Mapping[str, int]) -> int:
        """Requests to keep in flight under limits a minute, at least 1.

        Requests in flight are rate times latency (Little's law), and a little more because latency varies.
        """
        rates = [
            limits[resource] / 60 / amount
            for resource, amount in self._amounts.items()
            if amount and resource in limits
        ]
        if not rates:
            return min(self._unlimited, self._most)
        needed = min(rates) * self._latency
        return min(max(math.ceil(needed + ROOM * math.sqrt(needed)), 1), self._most)
