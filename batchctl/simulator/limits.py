"""Per-minute limits of the synchronous endpoints on virtual time, and the headers that tell of them."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from batchctl.simulator.clock import rfc3339
from batchctl.simulator.config import SyncLimits
from batchctl.simulator.errors import ANTHROPIC, ApiError

MINUTE = 60.0


@dataclass(slots=True)
class Meter:
    """One resource: what was taken in the last minute, and what may be taken now."""

    limit: int
    bucket: bool
    peak: int = 0
    _taken: deque[tuple[float, int]] = field(default_factory=deque)
    _sum: int = 0
    _level: float = -1.0
    _filled_at: float = 0.0

    def wait(self, amount: float, now: float) -> float:
        """Tell how long until `amount` fits; 0 is now."""
        self._drop_old(now)
        if self.bucket:
            self._fill(now)
            return max(0.0, (amount - self._level) * MINUTE / self.limit)
        over = self._sum + amount - self.limit
        if over <= 0:
            return 0.0
        for at, taken in self._taken:
            over -= taken
            if over <= 0:
                return max(at + MINUTE - now, 0.001)
        return MINUTE

    def take(self, amount: int, now: float) -> None:
        """Book an amount that was let through."""
        self._drop_old(now)
        if self.bucket:
            self._fill(now)
            self._level -= amount
        self._taken.append((now, amount))
        self._sum += amount
        self.peak = max(self.peak, self._sum)

    def remaining(self, now: float) -> int:
        """Tell how much may be taken now."""
        self._drop_old(now)
        if self.bucket:
            self._fill(now)
            return max(0, math.floor(self._level))
        return max(0, self.limit - self._sum)

    def full_in(self, now: float) -> float:
        """Tell how long until the whole limit is free again."""
        if self.bucket:
            return (self.limit - self.remaining(now)) * MINUTE / self.limit
        return max(self._taken[-1][0] + MINUTE - now, 0.0) if self._taken else 0.0

    def _drop_old(self, now: float) -> None:
        while self._taken and self._taken[0][0] <= now - MINUTE:
            self._sum -= self._taken.popleft()[1]

    def _fill(self, now: float) -> None:
        if self._level < 0 and not self._filled_at:
            self._level = float(self.limit)
        else:
            self._level = min(float(self.limit), self._level + (now - self._filled_at) * self.limit / MINUTE)
        self._filled_at = now


class SyncMeters:
    """The meters of one provider's synchronous endpoints."""

    def __init__(self, api: str, limits: SyncLimits) -> None:
        bucket = limits.algorithm == "bucket"
        wanted = {
            "requests": limits.requests_per_minute,
            "tokens": limits.tokens_per_minute,
            "output": limits.output_tokens_per_minute,
        }
        self._api = api
        self._charge = limits.openai_charge
        self.meters = {name: Meter(limit, bucket) for name, limit in wanted.items() if limit is not None}
        self.refused = 0

    def admit(self, prompt: int, output: int, most: int | None, now: float) -> None:
        """Let one call through or refuse it (rate-limits pages: Anthropic counts what is really produced)."""
        if not self.meters:
            return
        tokens = prompt
        if self._api != ANTHROPIC:
            tokens = max(most or 0, prompt) if self._charge == "reserve" else prompt + output
        amounts = {"requests": 1, "tokens": tokens, "output": output}
        waits = {name: meter.wait(amounts[name], now) for name, meter in self.meters.items()}
        name, wait = max(waits.items(), key=lambda pair: pair[1])
        if wait > 0:
            self.refused += 1
            raise self._refusal(name, wait, now)
        for taken, meter in self.meters.items():
            meter.take(amounts[taken], now)

    def headers(self, now: float) -> dict[str, str]:
        """Give the rate-limit headers in the provider's form."""
        return self._anthropic_headers(now) if self._api == ANTHROPIC else self._openai_headers(now)

    def public(self) -> dict[str, Any]:
        """Give the figures for stats: the most that any 60 seconds saw, and the refusals."""
        shown: dict[str, Any] = {
            name: {"limit": meter.limit, "peak_minute": meter.peak} for name, meter in self.meters.items()
        }
        return shown | {"refused": self.refused}

    def _refusal(self, name: str, wait: float, now: float) -> ApiError:
        headers = self.headers(now) | {"retry-after": str(max(1, math.ceil(wait)))}
        if self._api == ANTHROPIC:
            what = {"requests": "requests", "tokens": "input tokens", "output": "output tokens"}[name]
            message = f"This request would exceed the rate limit of {self.meters[name].limit:,} {what} per minute."
            return ApiError(429, message, headers=headers)
        headers["retry-after-ms"] = str(max(1, math.ceil(wait * 1000)))
        message = f"Rate limit reached on {name} per min. Please try again in {_duration(wait)}."
        return ApiError(429, message, kind=name, code="rate_limit_exceeded", headers=headers)

    def _anthropic_headers(self, now: float) -> dict[str, str]:
        shown: dict[str, str] = {}
        names = {"requests": ("requests",), "tokens": ("input-tokens", "tokens"), "output": ("output-tokens",)}
        for meter_name, meter in self.meters.items():
            remaining = meter.remaining(now)
            if meter_name != "requests":
                remaining = round(remaining, -3)
            for name in names[meter_name]:
                shown[f"anthropic-ratelimit-{name}-limit"] = str(meter.limit)
                shown[f"anthropic-ratelimit-{name}-remaining"] = str(remaining)
                shown[f"anthropic-ratelimit-{name}-reset"] = str(rfc3339(now + meter.full_in(now)))
        return shown

    def _openai_headers(self, now: float) -> dict[str, str]:
        shown: dict[str, str] = {}
        for name in ("requests", "tokens"):
            if meter := self.meters.get(name):
                shown[f"x-ratelimit-limit-{name}"] = str(meter.limit)
                shown[f"x-ratelimit-remaining-{name}"] = str(meter.remaining(now))
                shown[f"x-ratelimit-reset-{name}"] = _duration(meter.full_in(now))
        return shown


def _duration(seconds: float) -> str:
    """Write a duration as OpenAI's headers do: `20ms`, `1.5s`, `6m0s`."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    if seconds < MINUTE:
        return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}m{rest}s"
