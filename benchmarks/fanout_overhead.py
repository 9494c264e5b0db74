"""Overhead of the sync lane: against an instant server, 200 in flight, compared with bare loops in the same run.

`python -m benchmarks.fanout_overhead [ROUNDS]`
"""

from __future__ import annotations

import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

WINDOW = 200
SDK_SHARE = 10  # the SDK gets a tenth of the items


@contextmanager
def instant() -> Iterator[str]:
    """The instant server in a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.fanout_server", str(port)])
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@dataclass
class Rate:
    """What one loop reached."""

    items: float  # a second
    cpu: float  # microseconds an item


def measure(name: str, url: str, count: int, loop: str) -> Rate:
    """One loop in a process of its own."""
    line = [sys.executable, "-m", "benchmarks.fanout_loops", name, url, str(count), str(WINDOW), loop]
    done = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    rate = Rate(count / done["seconds"], done["cpu"] / count * 1e6)
    print(
        f"  {loop:7} {name:5} {rate.items:8,.0f} items/s  {rate.cpu:6.0f} us CPU an item  {done['rss_mb']:5.0f} MB",
        flush=True,
    )
    return rate


def compare(rounds: int, count: int, loop: str) -> tuple[str, str, float]:
    """Interleaved rounds; ratios are taken inside each.

    Returns:
        Text about the bare loop, text about the SDK, and the ratio of wall time to the bare loop.
    """
    with instant() as url:
        tries = [
            (
                measure("bare", url, count, loop),
                measure("ours", url, count, loop),
                measure("sdk", url, count // SDK_SHARE, loop),
            )
            for _ in range(rounds)
        ]
    wall = statistics.median(ours.items / bare.items for bare, ours, _ in tries)
    cpu = statistics.median(bare.cpu / ours.cpu for bare, ours, _ in tries)
    sdk = statistics.median(ours.items / theirs.items for _, ours, theirs in tries)
    sdk_cpu = statistics.median(theirs.cpu / ours.cpu for _, ours, theirs in tries)
    best = max(ours.items for _, ours, _ in tries)
    return (
        f"{wall:.2f} by wall, {cpu:.2f} by CPU; {best:,.0f} items/s at best",
        f"{sdk:.1f} times by wall, {sdk_cpu:.1f} by CPU",
        wall,
    )


if __name__ == "__main__":
    for loop in ("asyncio", "uvloop"):
        bare, sdk, _ = compare(int([*sys.argv, "5"][1]), 10_000, loop)
        print(f"{loop}: of the bare loop {bare} (wanted: 0.85); of the SDK's client {sdk} (wanted: 4)")
