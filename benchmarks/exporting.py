"""Reading results back: `results`, `results --ordered` and `errors` into a parser, beside `cat` into the same one."""

from __future__ import annotations

import shlex
from pathlib import Path

from benchmarks.importing import submitted
from benchmarks.measuring import Bench, Cost, batchctl, main, measure, module, pairs, stub

MB_A_SECOND = 100
TIMES = 2.0
LEAST = 20_000_000  # bytes below which only start-up would be judged
FINAL = ("--max-resubmits", "0")


def run(bench: Bench) -> None:
    """Collect a run, then pour its files out."""
    folder = bench.fresh("exporting")
    with stub(folder / "provider") as server:
        state = submitted(bench, server, folder / "run", *FINAL)
        measure(batchctl(state, "poll", "bench"))
    for name, arguments in (
        ("results.jsonl", ("results", "bench")),
        ("results.jsonl", ("results", "bench", "--ordered")),
        ("errors.jsonl", ("errors", "bench")),
        ("errors.jsonl", ("errors", "bench", "--ordered")),
    ):
        _pour(bench, folder / "run" / "out" / name, batchctl(state, *arguments), " ".join(arguments))


def _pour(bench: Bench, path: Path, command: list[str], name: str) -> None:
    taken = pairs(bench.rounds, lambda: _piped(command), lambda: _piped(["cat", str(path)]))
    alone = measure(command)
    rate = path.stat().st_size / 1e6 / alone.seconds
    bench.figure(
        f"`{name}`, {path.stat().st_size / 1e6:,.0f} MB",
        f"{rate:,.0f} MB/s alone; through a parser {1 / taken.wall:.2f} times `cat` "
        f"({taken.ours.seconds:.1f} s, {taken.bare.seconds:.1f} s), peak {alone.rss_mb:.0f} MB",
        f">= {MB_A_SECOND} MB/s, or within {TIMES:.0f} times of `cat`",
        met=None if path.stat().st_size < LEAST else rate >= MB_A_SECOND or 1 / taken.wall <= TIMES,
    )


def _piped(command: list[str]) -> Cost:
    parser = module("benchmarks.bare", "parse_stdin")
    return measure(["sh", "-c", f"{shlex.join(command)} | {shlex.join(parser)}"])


if __name__ == "__main__":
    main(run, items=50_000)
