"""Restart of a run that is nearly done: seconds from the command to its first call on the wire.

The baseline is the same command's `--help`, which is an interpreter that starts and does nothing.

`python -m benchmarks.fanout_restart [ITEMS]`
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from batchctl.runs.context import Context
from batchctl.runs.planning import PlanRequest, make_run
from batchctl.runs.settings import Settings
from batchctl.state.store import Store
from benchmarks.fanout_memory import command
from benchmarks.fanout_overhead import instant

LEFT = 1_000


def prepare(folder: Path, url: str, count: int) -> list[str]:
    """A run of which all but the last thousand items are done; returns the command that goes on with it."""
    source = folder / "items.jsonl"
    with source.open("w", encoding="utf-8") as file:
        file.writelines(f'{{"id":"i{number}","t":"text {number}"}}\n' for number in range(count))
    line = command(url, folder, str(source))
    settings = Settings("anthropic", "/v1/messages", "claude-sonnet-4-5", prompt="{{ t }}", max_tokens=64, base_url=url)
    ctx = Context(state_path=folder / "s.db", emit=lambda _event: None)
    with Store.open(ctx.state_path) as store:
        request = PlanRequest("r", (str(source),), settings, str(folder / "out"))
        make_run(ctx, request, lambda: store, packed=False)
    done = count - LEFT
    with (folder / "out" / "results.jsonl").open("wb") as file:
        file.writelines(b'{"id":"i%09d"}\n' % number for number in range(done))
    width = len(b'{"id":"i%09d"}\n' % 0)
    with sqlite3.connect(ctx.state_path) as database:
        database.execute(
            "UPDATE items SET state = 'succeeded', outcome = 'succeeded', attempts = 1, out_offset = (seq - 1) * ?1,"
            " out_length = ?1 - 1 WHERE seq <= ?2",
            (width, done),
        )
        database.execute("UPDATE runs SET succeeded = ?1, results_bytes = ?1 * ?2", (done, width))
        database.execute("INSERT INTO outcomes SELECT id, 'sync', 'succeeded', ? FROM runs", (done,))
    database.close()
    return line


def main(count: int, rounds: int = 1) -> float:
    """Restarts of that many items; returns the seconds of the best."""
    return min(restart(count) for _ in range(rounds))


def restart(count: int) -> float:
    """One restart."""
    os.environ.setdefault("ANTHROPIC_API_KEY", "none-at-all")
    with tempfile.TemporaryDirectory() as folder, instant() as url:
        line = prepare(Path(folder), url, count)
        start = time.perf_counter()
        subprocess.run([sys.executable, "-m", "batchctl", "--help"], check=True, capture_output=True)
        nothing = time.perf_counter() - start
        start = time.perf_counter()
        process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
        while int(urllib.request.urlopen(f"{url}/count").read()) == 0:
            time.sleep(0.005)
        seconds = time.perf_counter() - start
        assert process.wait() == 0
        calls = int(urllib.request.urlopen(f"{url}/count").read())
    print(
        f"first call after {seconds:.2f} s of {count:,} items (wanted: under 3; `--help`: {nothing:.2f}), "
        f"{calls} calls in all",
        flush=True,
    )
    return seconds


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)
