"""Start-up: the time of `--help` and `status`, and that neither loads an SDK."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.measuring import Bench, batchctl, main, measure, must

TARGET = 0.25
UNWANTED = {"anthropic", "openai", "aiohttp", "httpx2", "jinja2", "jsonschema", "sqlite_utils", "rich", "genai_prices"}


def run(bench: Bench) -> None:
    """Measure both commands beside an empty interpreter."""
    source = bench.input(1_000, 500)
    folder = bench.fresh("starting")
    must("benchmarks.local", str(source), str(bench.prompt), str(folder))
    state = folder / "state.db"
    bare = min(measure([sys.executable, "-c", ""]).seconds for _ in range(5))
    for arguments in (("--help",), ("status",), ("show", "bench")):
        command = batchctl(state, *arguments)
        best = min((measure(command) for _ in range(3 + 2 * bench.rounds)), key=lambda cost: cost.seconds)
        loaded = subprocess.run(
            [*command[:1], "-X", "importtime", *command[1:]], check=True, capture_output=True, text=True
        ).stderr
        names = {line.rpartition("|")[2].strip().partition(".")[0] for line in loaded.splitlines()}
        unwanted = sorted(names & UNWANTED)
        bench.figure(
            f"start-up of {arguments[0]}",
            f"best of {3 + 2 * bench.rounds}: {best.seconds:.3f} s (CPU {best.cpu:.3f} s; "
            f"empty interpreter {bare:.3f} s); loads {', '.join(unwanted) or 'no SDK'}",
            f"< {TARGET} s, no SDK",
            met=best.seconds < TARGET and not unwanted,
        )


if __name__ == "__main__":
    main(run, items=1_000)
