"""Runs every script and shows one table; with `--full` at the promised sizes, written to RESULTS.md.

Run as `python -m benchmarks [--full] [--only NAME…] [--folder FOLDER]`; `make bench` and `make bench-full` do.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.measuring import module

RESULTS = Path(__file__).with_name("RESULTS.md")
SCRIPTS: dict[str, tuple[int, int]] = {
    "starting": (1_000, 1_000),
    "planning": (30_000, 1_000_000),
    "sending": (5_000, 200_000),
    "importing": (10_000, 1_000_000),
    "exporting": (10_000, 1_000_000),
    "polling": (8_000, 80_000),
    "growth": (10_000, 10_000_000),
}
"""Each script with its number of items in the small and in the full run."""


def main() -> None:
    """Run them one after the other; each in a process of its own, so that none starts with another's memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", nargs="*", default=list(SCRIPTS), choices=list(SCRIPTS))
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchctl-bench-") as temporary:
        folder = given.folder or Path(temporary)
        figures = folder / "figures.jsonl"
        figures.unlink(missing_ok=True)
        for name in given.only:
            small, full = SCRIPTS[name]
            rounds = 3 if given.full else 1
            command = module(f"benchmarks.{name}", "--items", str(full if given.full else small))
            options = ["--rounds", str(rounds), "--folder", str(folder), "--figures", str(figures)]
            subprocess.run([*command, *options], check=True)
        rows = [json.loads(line) for line in figures.read_bytes().split(b"\n") if line]
    if given.full:
        _write(rows)


def _write(rows: list[dict[str, object]]) -> None:
    """Replace the measured part of RESULTS.md; what stands below its end is kept."""
    cpu = next(
        (line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n") if "model name" in line), ""
    )
    table = ["| stage | measured | target | |", "| --- | --- | --- | --- |"]
    marks = {True: "met", False: "**missed**", None: ""}
    table += [f"| {row['stage']} | {row['measured']} | {row['target']} | {marks[row['met']]} |" for row in rows]  # type: ignore[index]
    head = (
        f"# Benchmark results\n\nMeasured {datetime.now(UTC):%Y-%m-%d} by `make bench-full` on {os.cpu_count()} cores "
        f"({cpu.partition(': ')[2] or platform.machine()}), Python {platform.python_version()}.\n"
        "Ratios are medians of interleaved runs against a bare loop that does the same work on bytes alone.\n\n"
    )
    end = "<!-- end of what make bench-full writes -->"
    kept = RESULTS.read_text(encoding="utf-8").partition(end)[2] if RESULTS.exists() else "\n"
    RESULTS.write_text(head + "\n".join(table) + f"\n\n{end}{kept}", encoding="utf-8")


if __name__ == "__main__":
    main()
