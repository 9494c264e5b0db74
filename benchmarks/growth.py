"""Growth: every command at sizes ten times apart; time, memory, and what a look costs when there is much to look at."""

from __future__ import annotations

import math
import time
from pathlib import Path

from benchmarks.measuring import Bench, Cost, Stub, batchctl, main, measure, must, stub

SLOPE = 1.05
MOST_MB = 150
MOST_TIMES = 1.15
LOOK_SECONDS = 0.5
RESEND_SECONDS = 3.0
STEPS = 3

Costs = dict[str, Cost]


def run(bench: Bench) -> None:
    """Live through a whole run at each size, up to `--items`."""
    sizes = [bench.items // 10**step for step in reversed(range(STEPS)) if bench.items // 10**step >= 10_000]
    table = {size: _life(bench, size) for size in sizes}
    print(_markdown(table))
    bench.note(_markdown(table))
    largest, before = sizes[-1], sizes[-2] if len(sizes) > 1 else sizes[-1]
    for stage in table[largest]:
        _judge(bench, stage, largest, before, table[largest][stage], table[before][stage])


def _life(bench: Bench, count: int) -> Costs:
    folder = bench.fresh(f"growth-{count}")
    source = bench.input(count, 500)
    state = folder / "state.db"
    costs: Costs = {}

    def step(name: str, *arguments: str, codes: tuple[int, ...] = (0,)) -> None:
        costs[name] = measure(batchctl(state, *arguments), codes=codes)
        print(f"     {count:,} items: {name} {costs[name]}", flush=True)

    with stub(folder / "provider", "--once") as server:
        options = bench.options("--base-url", server.url, "--out", str(folder / "out"), "--name", "bench")
        step("plan", "plan", str(source), *bench.options())
        step("submit", "submit", str(source), *options)
        step("poll with nothing new", "poll", "bench")
        must("benchmarks.data", "results", str(state), "bench", str(server.folder))
        step("poll that imports", "poll", "bench")
        server.forget()
        step("status", "status")
        step("show", "show", "bench")
        step("results --ordered", "results", "bench", "--ordered")
        step("errors --summary", "errors", "bench", "--summary")
        costs["resubmit, to the first request"] = _first_request(server, state, count)
    bench.fresh(f"growth-{count}")
    if count > 1_000_000:
        source.unlink()
    return costs


def _first_request(server: Stub, state: Path, count: int) -> Cost:
    """The resubmit of what errored or expired, two items of a hundred."""
    started = time.time()
    cost = measure(batchctl(state, "resubmit", "bench"))
    sent = next(float(str(call["at"])) for call in server.calls() if call["method"] == "POST")
    taken = Cost(sent - started, cost.cpu, cost.rss_mb)
    print(f"     {count:,} items: resubmit {taken}", flush=True)
    return taken


def _judge(bench: Bench, stage: str, largest: int, before: int, last: Cost, earlier: Cost) -> None:
    slope = math.log(last.cpu / earlier.cpu) / math.log(largest / before) if largest > before else 1.0
    memory = last.rss_mb < MOST_MB and last.rss_mb <= MOST_TIMES * earlier.rss_mb
    wanted = f"slope <= {SLOPE}, < {MOST_MB} MB and <= {MOST_TIMES} times a tenth of the items"
    met = slope <= SLOPE and memory
    limit = None
    if stage in ("status", "show", "poll with nothing new"):
        limit = LOOK_SECONDS
    elif stage.startswith("resubmit"):
        limit = RESEND_SECONDS
    if limit is not None:
        wanted = f"< {limit} s; {wanted}"
        met = met and last.seconds < limit
    bench.figure(
        f"{stage}, {largest:,} items",
        f"{last.seconds:.2f} s (CPU {last.cpu:.2f} s), CPU slope {slope:.2f} from {before:,} items, peak "
        f"{last.rss_mb:.0f} MB ({last.rss_mb / earlier.rss_mb:.2f} times)",
        wanted,
        met=met,
    )


def _markdown(table: dict[int, Costs]) -> str:
    lines = ["| stage | " + " | ".join(f"{size:,}" for size in table) + " |", "| --- |" + " --- |" * len(table)]
    for stage in next(iter(table.values())):
        cells = (
            f"{costs[stage].seconds:.2f} s, CPU {costs[stage].cpu:.2f} s, {costs[stage].rss_mb:.0f} MB"
            for costs in table.values()
        )
        lines.append(f"| {stage} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main(run, items=100_000)
