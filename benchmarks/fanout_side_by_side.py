"""The fan-out beside other people's tools: the same server, the same items.

Run as `python -m benchmarks.fanout_side_by_side [ITEMS] [VENV]`. It makes a virtual environment for the others under
VENV (by default a temporary folder), never in the project's own; what cannot be installed is said and left out.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fanout_loops import texts
from benchmarks.fanout_overhead import instant
from benchmarks.results import table, write_section

PACKAGES = {"flexllm": "flexllm", "saturate": "saturate", "async_batch_llm": "async-batch-llm[openai]"}
OTHERS = Path(__file__).with_name("fanout_others.py")
PATIENCE = 600  # seconds a tool gets
DEAD_PATIENCE = 60  # seconds a tool gets to see that its key is dead
HEADER = ("tool", "items/s", "CPU an item", "peak", "calls to a dead key", "calls repeated after kill -9")

Command = Callable[[str, Path, Path], list[str]]


def ours(url: str, source: Path, folder: Path) -> list[str]:
    """The command line of this project."""
    prompt = folder / "prompt.txt"
    prompt.write_text("{{ t }}", encoding="utf-8")
    run = [sys.executable, "-m", "batchctl", "--state", str(folder / "s.db"), "--quiet", "fanout", str(source)]
    model = ["--provider", "openai", "--model", "gpt-5-mini", "--prompt", str(prompt), "--max-tokens", "64"]
    return [
        *run,
        *model,
        "--concurrency",
        "200",
        "--base-url",
        f"{url}/v1",
        "--name",
        "r",
        "--out",
        str(folder / "out"),
    ]


def theirs(python: Path, tool: str) -> Command:
    """The command line of another tool."""
    return lambda url, source, folder: [str(python), str(OTHERS), tool, url, str(source), str(folder)]


@dataclass
class Spent:
    """One process."""

    seconds: float
    cpu: float
    rss_mb: float


def calls(url: str) -> int:
    """How many calls the server has had."""
    return int(urllib.request.urlopen(f"{url}/count").read())


def run(command: list[str], url: str, kill_at: int | None = None, patience: float = PATIENCE) -> Spent:
    """Run to the end, or until so many calls were made, or until patience ends."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        pid, _, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if (kill_at is not None and calls(url) >= kill_at) or time.perf_counter() - start > patience:
            process.kill()
            _, _, usage = os.wait4(process.pid, 0)
            break
        time.sleep(0.01 if kill_at is not None else 0.1)
    process.returncode = 0  # it was waited for here
    return Spent(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def row(name: str, command: Command, source: Path, count: int) -> tuple[str, ...]:
    """Everything about one tool."""
    with tempfile.TemporaryDirectory() as folder, instant() as url:
        spent = run(command(url, source, Path(folder)), url)
        if (made := calls(url)) < count:
            return (name, f"made {made:,} of {count:,} calls in {spent.seconds:.0f} s", "", "", "", "")
    with tempfile.TemporaryDirectory() as folder, instant() as url:
        urllib.request.urlopen(f"{url}/dead").read()
        run(command(url, source, Path(folder)), url, patience=DEAD_PATIENCE)
        dead = calls(url)
    with tempfile.TemporaryDirectory() as folder, instant() as url:
        run(command(url, source, Path(folder)), url, kill_at=count // 2)
        run(command(url, source, Path(folder)), url)
        repeated = calls(url) - count
    cpu = f"{spent.cpu / count * 1e6:,.0f} us"
    rate = f"{count / spent.seconds:,.0f}"
    return (name, rate, cpu, f"{spent.rss_mb:,.0f} MB", f"{dead:,}", f"{repeated:,}")


def installed(folder: Path) -> dict[str, Path]:
    """Interpreters of the tools that could be installed."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    found = {}
    for tool, package in PACKAGES.items():
        if subprocess.run([python, "-c", f"import {tool}"], check=False, capture_output=True).returncode:
            subprocess.run([python, "-m", "pip", "install", "--quiet", package], check=False, capture_output=True)
        if subprocess.run([python, "-c", f"import {tool}"], check=False, capture_output=True).returncode:
            print(f"{package} cannot be installed here: left out", flush=True)
        else:
            found[tool] = python
    return found


def main(count: int, folder: Path) -> None:
    """Print the table, and write it into RESULTS.md."""
    os.environ.setdefault("OPENAI_API_KEY", "none-at-all")
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "items.jsonl"
        lines = (f'{{"id":"i{number}","t":"{text}"}}\n' for number, text in enumerate(texts(count)))
        source.write_text("".join(lines), encoding="utf-8")
        tools: dict[str, Command] = {"batchctl": ours}
        tools |= {tool: theirs(python, tool) for tool, python in installed(folder).items()}
        rows = []
        for name, command in tools.items():
            rows.append(row(name, command, source, count))
            print(*rows[-1], sep="  ", flush=True)
    body = (
        f"`python -m benchmarks.fanout_side_by_side {count}`\n\n{count:,} items against the same instant server, "
        "200 in flight, whole processes from start to end; a dead key from the first call on (60 s at most); killed at "
        "half.\n\n"
    )
    write_section("fanout_side_by_side", "Throttled fan-out beside other tools", body + table(HEADER, list(rows)))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        arguments = sys.argv[1:]
        main(int([*arguments, "20000"][0]), Path(arguments[1]) if len(arguments) > 1 else Path(temporary))
