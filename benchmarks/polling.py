"""Polling: 500 open batches in one pass, and results of several batches of which one trickles."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from datetime import datetime
from pathlib import Path

from benchmarks.importing import submitted
from benchmarks.measuring import Bench, batchctl, main, measure, stub

BATCHES = 500
PASS_SECONDS = 10.0
DELAY = 0.1
MOST_TOGETHER = 32


def run(bench: Bench) -> None:
    """Measure one pass over many batches, and one with a slow download."""
    _many(bench)
    _side_by_side(bench)


def _many(bench: Bench) -> None:
    folder = bench.fresh("polling")
    state = folder / "state.db"
    source = bench.input(BATCHES, 500)
    with stub(folder / "provider") as quick:
        options = bench.options("--base-url", quick.url, "--out", str(folder / "out"), "--name", "bench")
        measure(batchctl(state, "submit", str(source), "--max-requests", "1", *options))
        # the port is part of the run's settings, so the slower answers must come from the same server
        quick.delay(DELAY)
        quick.forget()
        cost = measure(batchctl(state, "poll", "bench"))
        calls = quick.calls()
    looks = Counter(call["path"] for call in calls)
    together = max(int(str(call["together"])) for call in calls)
    bench.figure(
        f"one pass over {BATCHES} open batches, answers after {DELAY:.1f} s",
        f"{cost.seconds:.1f} s, at most {together} calls at once, at most {max(looks.values())} a batch",
        f"< {PASS_SECONDS:.0f} s, bounded, one call a batch",
        met=cost.seconds < PASS_SECONDS and together <= MOST_TOGETHER and max(looks.values()) == 1,
    )


def _side_by_side(bench: Bench) -> None:
    folder = bench.fresh("side-by-side")
    with stub(folder / "provider", "--slow", "msgbatch_000001") as server:
        state = submitted(bench, server, folder / "run", "--max-requests", str(bench.items // 8))
        cost = measure(batchctl(state, "poll", "bench"))
        calls = [call for call in server.calls() if str(call["path"]).endswith("/results")]
    slow = next(call for call in calls if "msgbatch_000001/" in str(call["path"]))
    times = _collected(state)
    before = sum(moment < max(times) for moment in times)
    bench.figure(
        f"results of {len(times)} batches, one of which trickles at 2 MB/s",
        f"{before} of the other {len(times) - 1} were collected before the slow one, which took "
        f"{float(str(slow['done'])) - float(str(slow['at'])):.1f} s of {cost.seconds:.1f} s",
        "a slow one holds up none",
        met=before == len(times) - 1,
    )


def _collected(state: Path) -> list[datetime]:
    shown = subprocess.run(batchctl(state, "batches", "bench", "--json"), check=True, capture_output=True).stdout
    return [datetime.fromisoformat(json.loads(line)["collected_at"]) for line in shown.split(b"\n") if line]


if __name__ == "__main__":
    main(run, items=40_000)
