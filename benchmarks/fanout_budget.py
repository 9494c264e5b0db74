"""Budgets in virtual time against a provider that enforces every 60 seconds strictly: use, refusals, worst minute.

The baseline is a token bucket that starts full (as limiter libraries do), in the same run.

`python -m benchmarks.fanout_budget`
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from batchctl.core.model import Usage
from tests.fanout.virtual import Provider, planned, play

MINUTES = 10
ERROR = 0.1  # by how much the estimate of a request may be wrong
CASES = (("4 M tokens/min", 4_000_000, 1_200, 12_000, 0.99), ("60,000 tokens/min", 60_000, 600, 1_800, 0.965))


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


def tokens(name: str, limit: int, mean: int, most: int, wanted: float, seed: int = 3) -> None:
    """One budget of tokens for ten minutes."""
    real = sizes(round(limit * MINUTES / mean * 1.1), mean, most, seed)
    chance = random.Random(seed)
    estimates = [max(1, round(size * (1 + chance.uniform(-ERROR, ERROR)))) for size in real]
    provider = Provider(
        lambda id_: Usage(real[int(id_[1:]) - 1], 20), lambda c: c.lognormvariate(1, 0.6), {"tokens": limit}, seed=seed
    )
    with tempfile.TemporaryDirectory() as folder, planned(Path(folder), estimates, tpm=limit) as run:
        play(run, provider, limit=MINUTES * 60)
    used = sum(real[int(id_[1:]) - 1] for _, id_ in provider.starts)
    print(
        f"{name}: {used / (limit * MINUTES):.4f} of {MINUTES} minutes used (wanted {wanted}), "
        f"{provider.refused} refused, "
        f"worst 60 s {provider.worst['tokens']:.4f}; a full bucket: {full_bucket(real, limit)} refused in 2 minutes"
    )


def requests() -> None:
    """600 a minute with 900 a minute on offer."""
    provider = Provider(lambda _id: Usage(100, 20), lambda _chance: 1.0, {"requests": 600})
    with tempfile.TemporaryDirectory() as folder, planned(Path(folder), [100] * 4500, rpm=600) as run:
        play(run, provider, limit=300.0)
    print(
        f"600 requests/min: {len(provider.starts) / 3000:.4f} of 5 minutes used, {provider.refused} refused, "
        f"worst 60 s {provider.worst['requests']:.4f}"
    )


def utilisation() -> None:
    """A window of 20 on latencies with a long tail, against waves of 20; the median of five seeds."""
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
    print(f"window of 20: {sorted(use)[2]:.3f} of ideal (wanted 0.95), {sorted(gain)[2]:.2f} times waves (wanted 4)")


if __name__ == "__main__":
    for case in CASES:
        tokens(*case)
    requests()
    utilisation()
