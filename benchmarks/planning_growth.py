"""Growth of planning: `plan`, the local part of `submit` and the commands that look, beside the bare loop at each size.

Run as `python -m benchmarks.planning_growth --items 10000000`; sizes are ten times apart up to `--items`.
"""

from __future__ import annotations

import math
import shutil

from benchmarks.measuring import Bench, Cost, batchctl, main, measure, module
from benchmarks.results import table

STEPS = 3
SLOPE = 1.05
MOST_MB = 150
MOST_TIMES = 1.15
LOOKS = ("status", "show", "batches")


def run(bench: Bench) -> None:
    """Plan at each size, and judge the largest by the one before."""
    sizes = [bench.items // 10**step for step in reversed(range(STEPS))]
    costs = {size: _costs(bench, size) for size in sizes}
    for stage, last in costs[sizes[-1]].items():
        earlier, bare = costs[sizes[-2]][stage], costs[sizes[-1]]["bare loop"]
        slope = math.log10(last.cpu / earlier.cpu)
        ratio = "" if stage in (*LOOKS, "bare loop") else f"CPU {bare.cpu / last.cpu:.2f} of the bare loop, "
        bench.figure(
            f"{stage}, {sizes[-1]:,} items",
            f"{ratio}slope {slope:.2f}, peak {last.rss_mb:.0f} MB ({last.rss_mb / earlier.rss_mb:.2f} times)",
            f"slope <= {SLOPE}, < {MOST_MB} MB and <= {MOST_TIMES} times a tenth of the items",
            met=slope <= SLOPE and last.rss_mb < MOST_MB and last.rss_mb <= MOST_TIMES * earlier.rss_mb,
        )
    rows = [(stage, *(_cell(costs[size][stage]) for size in sizes)) for stage in costs[sizes[0]]]
    bench.note(table(("stage", *(f"{size:,} items" for size in sizes)), rows))


def _costs(bench: Bench, count: int) -> dict[str, Cost]:
    source = bench.input(count, 500)
    planned = bench.fresh("planned")
    costs = {
        "bare loop": measure(module("benchmarks.bare", "plan", str(source), str(bench.fresh("bare")))),
        "plan": measure(batchctl(bench.folder / "none.db", "plan", str(source), *bench.options())),
        "submit, local part": measure(module("benchmarks.local", str(source), str(bench.prompt), str(planned))),
    }
    for look in LOOKS:
        command = batchctl(planned / "state.db", look, *([] if look == "status" else ["bench"]))
        costs[look] = min((measure(command) for _ in range(2)), key=lambda cost: cost.seconds)
    for folder in (planned, bench.folder / "bare"):
        shutil.rmtree(folder)
    if count > 1_000_000:
        source.unlink()
    return costs


def _cell(cost: Cost) -> str:
    return f"{cost.seconds:.2f} s, CPU {cost.cpu:.2f} s, {cost.rss_mb:.0f} MB"


if __name__ == "__main__":
    main(run, items=100_000)
