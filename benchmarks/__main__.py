"""Runs every script and shows one table; with `--full` at the promised sizes, written to RESULTS.md.

Run as `python -m benchmarks [--full] [--only NAME…] [--rounds N] [--items N]`; `make bench` and `make bench-full` do.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from benchmarks.measuring import module
from benchmarks.results import table, write_section

SCRIPTS: dict[str, tuple[str, int, int]] = {
    "starting": ("Start-up", 1_000, 1_000),
    "planning": ("Planning", 30_000, 1_000_000),
    "sending": ("Sending", 5_000, 200_000),
    "importing": ("Download and import", 10_000, 1_000_000),
    "exporting": ("Reading results", 10_000, 1_000_000),
    "polling": ("Polling", 8_000, 80_000),
    "planning_growth": ("Growth of planning", 10_000, 10_000_000),
    "growth": ("Growth", 10_000, 10_000_000),
    "fanout": ("Throttled fan-out", 20_000, 1_000_000),
}
"""Each script with its title and its number of items in the small and in the full run."""
MARKS = {True: "met", False: "**missed**", None: ""}


def main() -> None:
    """Run them one after the other; each in a process of its own, so that none starts with another's memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="the promised sizes; writes RESULTS.md")
    parser.add_argument("--only", nargs="*", default=list(SCRIPTS), choices=list(SCRIPTS))
    parser.add_argument("--rounds", type=int, help="default: 3 in the full run, else 1")
    parser.add_argument("--items", type=int, help="another number of items")
    parser.add_argument("--folder", type=Path, help="where data is made and kept; default: a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchctl-bench-") as temporary:
        folder = given.folder or Path(temporary)
        figures = folder / "figures.jsonl"
        for name in given.only:
            title, small, full = SCRIPTS[name]
            items = given.items or (full if given.full else small)
            rounds = given.rounds or (3 if given.full else 1)
            figures.unlink(missing_ok=True)
            options = ["--items", str(items), "--rounds", str(rounds), "--folder", str(folder)]
            subprocess.run([*module(f"benchmarks.{name}"), *options, "--figures", str(figures)], check=True)
            if given.full:
                write_section(name, title, _body(figures, f"python -m benchmarks.{name} --items {items}"))


def _body(figures: Path, command: str) -> str:
    rows = [json.loads(line) for line in figures.read_bytes().split(b"\n") if line]
    stages = [(row["stage"], row["measured"], row["target"], MARKS[row["met"]]) for row in rows if row["stage"]]
    notes = "".join(f"\n\n{row['measured']}" for row in rows if not row["stage"])
    return f"`{command}`\n\n{table(('stage', 'measured', 'target', ''), stages)}{notes}"


if __name__ == "__main__":
    main()
