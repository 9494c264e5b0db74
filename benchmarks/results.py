"""RESULTS.md: one section for each script, between markers, so that each can be written anew without the others."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

RESULTS = Path(__file__).with_name("RESULTS.md")
HEAD = """# Benchmark results

`make bench-full` writes these sections, each script its own. A ratio stands beside a yardstick measured in the same
run, in turns; above 1 the command is faster. Wall and CPU are both told: where other work shared the machine the ratio
of CPU is the steadier one. Peak is the largest resident size of the process.
"""


def machine() -> str:
    """Cores, CPU, memory, Python, and how much else was running, in a few words."""
    cpu = _line("/proc/cpuinfo", "model name") or platform.machine()
    memory = int((_line("/proc/meminfo", "MemTotal") or "0 kB").split()[0]) // 2**20
    where = f"{os.cpu_count()} cores ({cpu}), {memory} GB, Python {platform.python_version()}"
    return f"{where}, load average {os.getloadavg()[1]:.1f} (1 is one busy core)"


def _line(path: str, name: str) -> str:
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def write_section(name: str, title: str, body: str) -> None:
    """Replace the section of this name in RESULTS.md, or add it at the end.

    Args:
        name: the script's name, in the markers.
        body: Markdown.
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    section = f"{begin}\n## {title}\n\nMeasured {datetime.now(UTC):%Y-%m-%d} on {machine()}.\n\n{body.strip()}\n{end}\n"
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else HEAD
    before, found, rest = text.partition(begin)
    after = rest.partition(f"{end}\n")[2] if found else ""
    RESULTS.write_text(f"{before}{section}{after}" if found else f"{text}\n{section}", encoding="utf-8")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
