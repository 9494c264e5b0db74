"""Virtual time: the real clock, sped up, stopped or pushed forward."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from email.utils import formatdate


class VirtualClock:
    """Time that runs at `speed` from the real now, or from `start` when that is later."""

    def __init__(self, speed: float, start: float = 0.0) -> None:
        self.speed = speed
        self.started_at = max(time.time(), start)
        self._offset = self.started_at
        self._real_start = time.monotonic()
        self._date = (0, "")

    def now(self) -> float:
        """Virtual seconds since the epoch."""
        return self._offset + (time.monotonic() - self._real_start) * self.speed

    def advance(self, seconds: float) -> None:
        """Jump forward; time never goes back."""
        if seconds < 0:
            raise ValueError("the clock only moves forward")
        self._offset += seconds

    def real(self, virtual_seconds: float) -> float:
        """Real seconds that a virtual wait takes; a stopped clock waits for nobody."""
        return virtual_seconds / self.speed if self.speed > 0 else 0.0

    def http_date(self) -> str:
        """Return the `Date` header for now."""
        second = int(self.now())
        if self._date[0] != second:
            self._date = (second, formatdate(second, usegmt=True))
        return self._date[1]


def rfc3339(at: float | None) -> str | None:
    """Write a moment as Anthropic does."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
