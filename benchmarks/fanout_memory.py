"""Peak memory of the sync lane fed by standard input: many items against few.

`python -m benchmarks.fanout_memory [MANY] [FEW]`; a million takes a while.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.fanout_loops import texts
from benchmarks.fanout_overhead import instant


def command(url: str, folder: Path, source: str) -> list[str]:
    """The command line of one run."""
    prompt = folder / "prompt.txt"
    prompt.write_text("{{ t }}", encoding="utf-8")
    run = [sys.executable, "-m", "batchctl", "--state", str(folder / "s.db"), "--quiet", "fanout", source]
    model = ["--provider", "anthropic", "--model", "claude-sonnet-4-5", "--prompt", str(prompt), "--max-tokens", "64"]
    limits = ["--rpm", "100000000", "--tpm", "100000000000", "--concurrency", "200"]
    return [*run, *model, *limits, "--base-url", url, "--name", "r", "--out", str(folder / "out")]


def peak(url: str, count: int) -> float:
    """Megabytes of one command that reads so many items from a pipe."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(command(url, Path(folder), "-"), stdin=subprocess.PIPE)
        assert process.stdin is not None
        for number, text in enumerate(texts(count)):
            process.stdin.write(b'{"id":"i%d","t":"%b"}\n' % (number, text.encode()))
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
    print(f"  {count:9,} items: {usage.ru_maxrss / 1024:.0f} MB", flush=True)
    return usage.ru_maxrss / 1024


def main(many: int, few: int) -> tuple[float, float]:
    """Peaks of both counts against the same server."""
    os.environ.setdefault("ANTHROPIC_API_KEY", "none-at-all")
    with instant() as url:
        small, large = peak(url, few), peak(url, many)
    print(f"{large:.0f} MB at {many:,} items (wanted: under 150), {large - small:+.0f} MB from {few:,} (wanted: +20)")
    return small, large


if __name__ == "__main__":
    counts = [int(argument) for argument in sys.argv[1:]]
    main(*(counts + [1_000_000, 10_000][len(counts) :]))
