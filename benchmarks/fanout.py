"""The throttled fan-out: overhead, restart, budgets, the window, memory.

Run as `python -m benchmarks.fanout [--items N] [--rounds N]`; N items stream in for the memory and are restarted.
"""

from __future__ import annotations

import os

from benchmarks import fanout_budget, fanout_memory, fanout_restart
from benchmarks.fanout_overhead import compare
from benchmarks.measuring import Bench, main

FEW = 10_000
REAL_MINUTES = 4


def run(bench: Bench) -> None:
    """All figures; the budgets in virtual time are the same whatever else the machine does."""
    os.environ.setdefault("ANTHROPIC_API_KEY", "none-at-all")
    large = fanout_budget.tokens(*fanout_budget.LARGE)
    good = large.part >= 0.99 and not large.refused and large.worst <= 1
    bench.figure("4 M tokens/min, ten minutes, virtual time", str(large), ">= 0.99, 0 refused, <= 1", met=good)
    small = fanout_budget.tokens(*fanout_budget.SMALL)
    good = not small.refused and small.worst <= 1
    bench.figure("60,000 tokens/min, ten minutes, virtual time", str(small), "0 refused, <= 1", met=good)
    real = fanout_budget.tokens(*fanout_budget.SMALL, minutes=REAL_MINUTES, real_time=True)
    good = not real.refused and real.worst <= 1
    bench.figure(f"60,000 tokens/min, {REAL_MINUTES} minutes of real time", str(real), "0 refused, <= 1", met=good)
    rpm = fanout_budget.requests()
    good = not rpm.refused and rpm.worst <= 1
    bench.figure("600 requests/min, 900 on offer", str(rpm), "0 refused, <= 1", met=good)
    use, gain = fanout_budget.utilisation()
    good = use >= 0.95 and gain >= 4
    measured = f"{use:.3f} of ideal, {gain:.2f} times waves"
    bench.figure("window of 20, log-normal latency", measured, ">= 0.95, >= 4 times", met=good)
    for loop in ("asyncio", "uvloop"):
        bare, sdk, ratio = compare(2 * bench.rounds + 1, FEW, loop)
        bench.figure(f"whole lane / bare aiohttp, instant server, {loop}", bare, ">= 0.85", met=ratio >= 0.85)
        bench.figure(f"whole lane / the SDK's client, {loop}", sdk, ">= 4 times", met=None)
    seconds = fanout_restart.main(bench.items, bench.rounds)
    bench.figure(f"restart, 1,000 of {bench.items:,} left: first call", f"{seconds:.2f} s", "< 3 s", met=seconds < 3)
    few, many = fanout_memory.main(bench.items, FEW)
    measured = f"{many:.0f} MB, {many - few:+.0f} MB from {FEW:,}"
    good = many < 150 and many - few <= 20
    bench.figure(f"memory, {bench.items:,} items from a pipe", measured, "< 150 MB, <= +20 MB", met=good)


if __name__ == "__main__":
    main(run, items=20_000)
