"""Models of how providers count a minute, and a client at full demand, in virtual time."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from batchctl.core.limiter import Amounts, Limiter, Taken


class Server(Protocol):
    """Something that accepts or refuses."""

    def accepts(self, now: float, amount: float) -> bool:
        """Whether a request of so much gets in now."""
        ...


class StrictMinute:
    """Refuses what would bring the last 60 seconds over the limit."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.used = 0.0
        self.worst = 0.0
        self._window: deque[tuple[float, float]] = deque()

    def accepts(self, now: float, amount: float) -> bool:
        """Count the request if there is room."""
        while self._window and self._window[0][0] <= now - 60:
            self.used -= self._window.popleft()[1]
        self.worst = max(self.worst, (self.used + amount) / self.limit)
        if self.used + amount > self.limit:
            return False
        self._window.append((now, amount))
        self.used += amount
        return True


class TokenBucket:
    """Refuses when a bucket of `seconds` of the limit is empty."""

    def __init__(self, limit: float, seconds: float) -> None:
        self._rate = limit / 60
        self._size = self._left = self._rate * seconds
        self._at = 0.0

    def accepts(self, now: float, amount: float) -> bool:
        """Take the request out of the bucket if it is in."""
        self._left = min(self._size, self._left + (now - self._at) * self._rate)
        self._at = now
        if amount > self._left:
            return False
        self._left -= amount
        return True


@dataclass
class Report:
    """What a run at full demand came to."""

    sent: float = 0.0
    refused: int = 0
    requests: int = 0
    starts: list[float] = field(default_factory=list)


def run(
    limiter: Limiter,
    server: Server,
    draw: Callable[[random.Random], int],
    *,
    seconds: float,
    seed: int = 1,
    error: float = 0.0,
) -> Report:
    """Send one request after the other as soon as the limiter allows; 20 to 300 ms of way, answers after seconds.

    Args:
        draw: the real amount of a request.
        error: by how much estimates may be wrong, corrected when the answer comes.
    """
    chance = random.Random(seed)
    report = Report()
    coming: list[tuple[float, int, int]] = []
    answers: list[tuple[float, int, Taken, int]] = []
    now = 0.0
    while now < seconds:
        amount = draw(chance)
        planned = Amounts(1, max(1, round(amount * (1 + chance.uniform(-error, error)))))
        while (ready := limiter.ready_at(now, planned)) > now:
            now = min(ready, answers[0][0]) if answers else ready
            settle(limiter, answers, now)
        taken = limiter.take(now, planned)
        report.starts.append(now)
        report.requests += 1
        report.sent += amount
        arrival = now + chance.uniform(0.02, 0.3)
        heapq.heappush(coming, (arrival, report.requests, amount))
        heapq.heappush(answers, (arrival + chance.lognormvariate(1, 0.6), report.requests, taken, amount))
        while coming and coming[0][0] <= now:
            at, _, size = heapq.heappop(coming)
            report.refused += not server.accepts(at, size)
    return report


def settle(limiter: Limiter, answers: list[tuple[float, int, Taken, int]], now: float) -> None:
    """Correct what came back by now."""
    while answers and answers[0][0] <= now:
        _, _, taken, amount = heapq.heappop(answers)
        limiter.correct(now, taken, Amounts(1, amount))


def worst_minute(starts: list[float], amounts: list[int]) -> int:
    """The most that lies in any 60 seconds."""
    worst = inside = first = 0
    for last, at in enumerate(starts):
        inside += amounts[last]
        while starts[first] <= at - 60:
            inside -= amounts[first]
            first += 1
        worst = max(worst, inside)
    return worst


def planned(tokens: int) -> Amounts:
    """One request of so many tokens."""
    return Amounts(1, tokens)
