"""Counts what the sync lane does and says so: a line every ten seconds, a pulse every second for a live display."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from batchctl.core.durations import format_duration

MINUTE = 60.0
LINE_EVERY = 10  # pulses
KIND = "fanout.progress"


@dataclass(slots=True)
class Meter:
    """Counters of one command, and the rates of its last minute."""

    admitted: int = 0
    completed: int = 0
    failed: int = 0
    calls: int = 0
    refused: int = 0  # answers that said there is no room
    tokens: int = 0
    _samples: deque[tuple[float, int, int, int, int]] = field(default_factory=lambda: deque(maxlen=int(MINUTE) + 1))

    def sample(self, now: float) -> None:
        """Remember the counters of this moment; called about once a second."""
        self._samples.append((now, self.completed + self.failed, self.tokens, self.calls, self.refused))

    def rates(self) -> dict[str, float]:
        """Items and tokens a minute, and the part of calls that were refused, over the last minute at most."""
        if len(self._samples) < 2:  # noqa: PLR2004  # a rate needs two moments
            return {"items_per_minute": 0.0, "tokens_per_minute": 0.0, "refused_part": 0.0}
        first, last = self._samples[0], self._samples[-1]
        minutes = max(last[0] - first[0], 1e-9) / MINUTE
        items, tokens, calls, refused = (after - before for before, after in zip(first[1:], last[1:], strict=True))
        return {
            "items_per_minute": items / minutes,
            "tokens_per_minute": tokens / minutes,
            "refused_part": refused / calls if calls else 0.0,
        }


def progress(
    meter: Meter, *, in_flight: int, oldest: float, window: int, cost_usd: float, open_items: int | None
) -> dict[str, Any]:
    """Where a command stands, as data.

    Args:
        oldest: seconds since the oldest call in flight was sent.
        open_items: items still to come, None while the input has not ended.
    """
    rates = meter.rates()
    per_minute = rates["items_per_minute"]
    known = open_items is not None and per_minute > 0
    return {
        "admitted": meter.admitted,
        "completed": meter.completed,
        "failed": meter.failed,
        "in_flight": in_flight,
        "oldest_seconds": round(oldest, 1),
        "items_per_minute": round(per_minute),
        "tokens_per_minute": round(rates["tokens_per_minute"]),
        "refused_part": round(rates["refused_part"], 4),
        "window": window,
        "cost_usd": round(cost_usd, 6),
        "eta_seconds": round(open_items / per_minute * MINUTE) if open_items is not None and known else None,
    }


def progress_text(data: dict[str, Any]) -> str:
    """Where a command stands, as a line."""
    eta = data["eta_seconds"]
    oldest = f" (oldest {format_duration(data['oldest_seconds'])})" if data["in_flight"] else ""
    return (
        f"{data['admitted']:,} admitted, {data['completed']:,} completed, {data['failed']:,} failed, "
        f"{data['in_flight']:,} in flight{oldest}, "
        f"{data['items_per_minute']:,} items/min, {data['tokens_per_minute']:,} tokens/min, "
        f"429: {data['refused_part']:.1%}, window {data['window']:,}, ${data['cost_usd']:,.2f}"
        + ("" if not eta else f", about {format_duration(eta)} left")
    )
