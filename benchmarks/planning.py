"""Planning against a bare loop that parses, fills the same template, serialises and writes the batch files."""

from __future__ import annotations

from benchmarks.measuring import Bench, batchctl, main, measure, module, pairs

TARGET = 0.6
STRETCH = 0.85


def run(bench: Bench) -> None:
    """Measure `plan`, and the local part of `submit`, on short and on long items."""
    for size, count in ((500, bench.items), (2_000, bench.items // 4)):
        source = bench.input(count, size)
        plan = batchctl(bench.folder / "none.db", "plan", str(source), *bench.options())
        _figure(bench, f"plan, {count:,} items of {size:,} B", size, count, plan)
        planned = bench.fresh("planned")
        local = module("benchmarks.local", str(source), str(bench.prompt), str(planned))
        _figure(bench, f"submit, local part, {count:,} items of {size:,} B", size, count, local)
        bench.fresh("planned")


def _figure(bench: Bench, stage: str, size: int, count: int, command: list[str]) -> None:
    bare = module("benchmarks.bare", "plan", str(bench.input(count, size)), str(bench.folder / "bare"))
    taken = pairs(bench.rounds, lambda: measure(command), lambda: measure(bare))
    bench.figure(stage, str(taken), f">= {TARGET} (stretch {STRETCH})", met=taken.wall >= TARGET)


if __name__ == "__main__":
    main(run, items=100_000)
