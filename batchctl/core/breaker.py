"""Stops a run that only fails: at a systemic error at once, else when too many of the last answers are failures."""

from __future__ import annotations

from collections import Counter, deque


class Breaker:
    """Watches outcomes; once it has a reason to stop it keeps it.

    Args:
        most: part of the last outcomes that may be failures, from 0 to 1.
        last: outcomes looked at; with fewer there is no judgement.
    """

    def __init__(self, most: float = 0.2, last: int = 50) -> None:
        self._most = most
        self._outcomes: deque[str | None] = deque(maxlen=last)
        self._last = last
        self._failures: Counter[str] = Counter()
        self._failed = 0
        self.reason: str | None = None

    def record(self, failure: str | None) -> None:
        """Take in the end of an item, None for a success; waiting and retries are no ends (field report 132)."""
        outcomes = self._outcomes
        full = len(outcomes) == self._last
        if full and (oldest := outcomes[0]) is not None:
            self._failures[oldest] -= 1
            self._failed -= 1
        outcomes.append(failure)
        if failure is not None:
            self._failures[failure] += 1
            self._failed += 1
        if self._failed > self._most * self._last and self.reason is None and len(outcomes) == self._last:
            kind, count = self._failures.most_common(1)[0]
            self.reason = f"{self._failed} of the last {self._last} items failed, {count} of them with {kind}"

    def stop(self, reason: str) -> None:
        """Stop for an error that every request would meet; the first reason stays."""
        self.reason = self.reason or reason
