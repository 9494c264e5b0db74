"""Overhead of the sync lane: against an instant server, 200 in flight, compared with bare loops in the same run.

`python -m benchmarks.fanout_overhead [ROUNDS] [ITEMS]`
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


def measure(name: str, url: str, count: int) -> float:
    """Items a second of one loop."""
    line = [sys.executable, "-m", "benchmarks.fanout_loops", name, url, str(count), str(WINDOW)]
    done = json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)
    cpu = done["cpu"] / count * 1e6
    print(
        f"  {name:5} {count / done['seconds']:8,.0f} items/s  {cpu:6.0f} us CPU an item  {done['rss_mb']:5.0f} MB",
        flush=True,
    )
    return float(count / done["seconds"])


def main(rounds: int, count: int) -> None:
    """Interleaved rounds; the ratio is taken inside each."""
    ratios: dict[str, list[float]] = {"bare": [], "sdk": []}
    with instant() as url:
        for _ in range(rounds):
            bare, ours, sdk = (
                measure("bare", url, count),
                measure("ours", url, count),
                measure("sdk", url, count // SDK_SHARE),
            )
            ratios["bare"].append(ours / bare)
            ratios["sdk"].append(ours / sdk)
    print(f"ours / bare loop: {statistics.median(ratios['bare']):.2f} (wanted: 0.85)")
    print(f"ours / SDK's client: {statistics.median(ratios['sdk']):.1f} (wanted: 4)")


if __name__ == "__main__":
    rounds, count = [*sys.argv[1:], "3", "10000"][:2] if len(sys.argv) != 2 else (sys.argv[1], "10000")
    main(int(rounds), int(count))
