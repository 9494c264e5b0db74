"""Budgets in virtual time against a provider that enforces every 60 seconds strictly: use, refusals, worst minute.

The baseline is a token bucket that starts full (as limiter libraries do), in the same run.

`python -m benchmarks.fanout_budget [--real]`; `--real` also takes four minutes of real time.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchctl.core.model import Usage
from batchctl.runs.fanout_running import drive
from tests.fanout.virtual import Provider, planned, play

MINUTES = 10
ERROR = 0.1  # by how much the estimate of a request may be wrong
SEED = 3
LARGE = (4_000_000, 1_200, 12_000)  # a minute, mean and largest tokens of a request
SMALL = (60_000, 600, 1_800)


@dataclass
class Use:
    """What became of a budget."""

    part: float  # used
    refused: int
    worst: float  # 60 seconds, as part of the limit
    full_bucket: int = 0  # refusals a bucket that starts full meets in two minutes

    def __str__(self) -> str:
        more = f"; a full bucket: {self.full_bucket} refused in 2 minutes" if self.full_bucket else ""
        return f"{self.part:.4f} used, {self.refused} refused, worst 60 s {self.worst:.4f}{more}"


def sizes(count: int, mean: int, most: int, seed: int) -> list[int]:
    """Log-normal tokens with a long tail."""
    chance = random.Random(seed)
    return [min(most, max(1, round(chance.lognormvariate(0, 0.8) * mean / 1.38))) for _ in range(count)]


def full_bucket(real: list[int], limit: int) -> int:
    """Refusals a full bucket of a minute meets in its first two minutes."""
    provider = Provider(lambda _id: Usage(), lambda _chance: 0.0, {"tokens": limit})
    now, level, refused = 0.0, float(limit), 0
    for size in real:
        if size > level:
            now += (size - level) * 60 / limit
            level = float(size)
        level -= size
        if now > 120:
            break
        try:
            provider._admit(now, Usage(size))  # noqa: SLF001  # the server's own rule
        except Exception:  # noqa: BLE001  # a refusal
            refused += 1
    return refused


def tokens(limit: int, mean: int, most: int, *, minutes: float = MINUTES, real_time: bool = False) -> Use:
    """One budget of tokens at full demand."""
    real = sizes(round(limit * minutes / mean * 1.1), mean, most, SEED)
    chance = random.Random(SEED)
    estimates = [max(1, round(size * (1 + chance.uniform(-ERROR, ERROR)))) for size in real]
    provider = Provider(
        lambda id_: Usage(real[int(id_[1:]) - 1], 20), lambda c: c.lognormvariate(1, 0.6), {"tokens": limit}, seed=SEED
    )
    with tempfile.TemporaryDirectory() as folder, planned(Path(folder), estimates, tpm=limit) as run:
        if real_time:
            run.ctx.emit = lambda _event: None
            asyncio.run(_for(drive(run, provider, None), minutes * 60))
        else:
            play(run, provider, limit=minutes * 60)
    used = sum(real[int(id_[1:]) - 1] for _, id_ in provider.starts)
    return Use(used / (limit * minutes), provider.refused, provider.worst["tokens"], full_bucket(real, limit))


async def _for(work: Coroutine[Any, Any, None], seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await work


def requests() -> Use:
    """600 a minute with 900 a minute on offer, five minutes."""
    provider = Provider(lambda _id: Usage(100, 20), lambda _chance: 1.0, {"requests": 600})
    with tempfile.TemporaryDirectory() as folder, planned(Path(folder), [100] * 4500, rpm=600) as run:
        play(run, provider, limit=300.0)
    return Use(len(provider.starts) / 3000, provider.refused, provider.worst["requests"])


def utilisation() -> tuple[float, float]:
    """A window of 20 on latencies with a long tail: part of ideal, and times waves of 20; the median of five seeds."""
    use, gain = [], []
    for seed in range(1, 6):
        provider = Provider(
            lambda _id: Usage(100, 20), lambda chance: chance.lognormvariate(0, 1.0), way=(0, 0), seed=seed
        )
        with tempfile.TemporaryDirectory() as folder, planned(Path(folder), [100] * 2000, concurrency=20) as run:
            seconds = play(run, provider).seconds
        chance = random.Random(seed)
        durations = [chance.lognormvariate(0, 1.0) for _ in range(2000)]
        waves = sum(max(durations[start : start + 20]) for start in range(0, 2000, 20))
        use.append(provider.busy / 20 / seconds)
        gain.append(waves / seconds)
    return sorted(use)[2], sorted(gain)[2]


if __name__ == "__main__":
    print("4 M tokens/min:", tokens(*LARGE))
    print("60,000 tokens/min:", tokens(*SMALL))
    print("600 requests/min:", requests())
    print("window of 20: {:.3f} of ideal, {:.2f} times waves".format(*utilisation()))
    if "--real" in sys.argv:
        print("60,000 tokens/min in real time:", tokens(*SMALL, minutes=4, real_time=True))
