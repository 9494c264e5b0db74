"""The same input through other people's tools: preparing and splitting requests, and importing results.

Run as `python -m benchmarks.side_by_side --items N TOOL=PYTHON…`, each tool with the interpreter that has it.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from pathlib import Path

from benchmarks.importing import submitted
from benchmarks.measuring import Bench, Cost, batchctl, measure, module, must, stub

SCRIPT = Path(__file__).with_name("others.py")


def main() -> None:
    """Print one Markdown row a tool."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("tools", nargs="*", metavar="TOOL=PYTHON")
    given = parser.parse_args()
    print("| tool | prepare | peak | import | peak |\n| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="batchctl-bench-") as temporary:
        bench = Bench(given.items, 1, Path(temporary))
        _row("batchctl", *_ours(bench))
        bare = measure(module("benchmarks.bare", "plan", str(bench.input(bench.items, 500)), f"{temporary}/bare"))
        _row("bare loop", bare, None)
        for tool in given.tools:
            name, _, python = tool.partition("=")
            _row(name, *_theirs(bench, name, python))


def _row(name: str, *costs: Cost | None) -> None:
    cells = [
        cell
        for cost in costs
        for cell in (
            ("-", "-") if cost is None else (f"{cost.seconds:.1f} s, CPU {cost.cpu:.1f} s", f"{cost.rss_mb:,.0f} MB")
        )
    ]
    print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _ours(bench: Bench) -> tuple[Cost, Cost]:
    folder = bench.fresh("ours")
    source = bench.input(bench.items, 500)
    prepared = measure(module("benchmarks.local", str(source), str(bench.prompt), str(bench.folder / "planned")))
    bench.fresh("planned")
    with stub(folder / "provider") as server:
        state = submitted(bench, server, folder / "run")
        imported = measure(batchctl(state, "poll", "bench"))
    bench.fresh("ours")
    return prepared, imported


def _theirs(bench: Bench, name: str, python: str) -> tuple[Cost | None, Cost | None]:
    folder = bench.fresh(name)
    source = str(bench.input(bench.items, 500))
    prepared = _tried([python, str(SCRIPT), name, "prepare", source, str(folder)])
    imported = None
    if prepared is not None and f"def {name}_import" in SCRIPT.read_text(encoding="utf-8"):
        must("benchmarks.data", "answers", str(folder), str(folder / "provider"))
        with stub(folder / "provider") as server:
            imported = _tried([python, str(SCRIPT), name, "import", source, str(folder), server.url])
    bench.fresh(name)
    return prepared, imported


def _tried(command: list[str]) -> Cost | None:
    try:
        return measure(command, stdout=subprocess.DEVNULL)
    except RuntimeError as error:
        print(f"     {error}", flush=True)
        return None


if __name__ == "__main__":
    main()
