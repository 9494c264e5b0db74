"""Runs commands as processes of their own, measures them, and keeps the figures that come of it."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from benchmarks.prompt import TEMPLATE

MODEL = "claude-sonnet-4-5"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process took; seconds of wall clock and of CPU (user and system), peak resident MB."""

    seconds: float
    cpu: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table; `met` is None where the row only informs."""

    stage: str
    measured: str
    target: str
    met: bool | None

    def show(self) -> None:
        """Print the row at once, so that a long run can be watched."""
        mark = {True: "ok  ", False: "MISS", None: "    "}[self.met]
        print(f"{mark} {self.stage}: {self.measured} (target: {self.target})", flush=True)


class Bench:
    """What every script is given: sizes, a folder for its data, and a place for its figures."""

    def __init__(self, items: int, rounds: int, folder: Path) -> None:
        self.items = items
        self.rounds = rounds
        self.folder = folder
        self.figures: list[Figure] = []
        self.prompt = folder / "prompt.txt"
        self.prompt.write_text(TEMPLATE, encoding="utf-8")

    def figure(self, stage: str, measured: str, target: str, *, met: bool | None) -> None:
        """Add a row and print it."""
        self.figures.append(Figure(stage, measured, target, met))
        self.figures[-1].show()

    def note(self, text: str) -> None:
        """Add Markdown that stands below the table."""
        self.figures.append(Figure("", text, "", None))

    def input(self, count: int, size: int) -> Path:
        """A file of items, made on first use; later scripts of the same run find it."""
        path = self.folder / f"items-{count}-{size}.jsonl"
        if not path.exists():
            must("benchmarks.data", "items", str(path), str(count), str(size))
        return path

    def fresh(self, name: str) -> Path:
        """An empty folder."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path

    def options(self, *more: str) -> list[str]:
        """The options of a run on Anthropic's batch API."""
        return [
            "--provider", "anthropic", "--model", MODEL, "--prompt", str(self.prompt), "--max-tokens", "200", *more,
        ]  # fmt: skip


def batchctl(state: Path, *arguments: str) -> list[str]:
    """The command line of `batchctl` with this state file."""
    return [sys.executable, "-m", "batchctl", "--state", str(state), "--quiet", *arguments]


def module(name: str, *arguments: str) -> list[str]:
    """The command line of one of our own modules."""
    return [sys.executable, "-m", name, *arguments]


def must(name: str, *arguments: str) -> None:
    """Run one of our own modules and expect it to succeed."""
    subprocess.run(module(name, *arguments), check=True)


def measure(
    command: Sequence[str], *, codes: Sequence[int] = (0,), stdout: IO[bytes] | int = subprocess.DEVNULL
) -> Cost:
    """Run a command to its end.

    Raises:
        RuntimeError: it ended with another exit code than wanted.
    """
    environment = os.environ | {"ANTHROPIC_API_KEY": "bench", "OPENAI_API_KEY": "bench", "NO_PROXY": "127.0.0.1"}
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=stdout, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in codes:
        raise RuntimeError(f"exit code {process.returncode}: {' '.join(command)}")
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


@dataclass(frozen=True, slots=True)
class Pairs:
    """Medians of interleaved runs: ours beside the yardstick's."""

    ours: Cost
    bare: Cost
    wall: float
    cpu: float

    def __str__(self) -> str:
        return (
            f"{self.wall:.2f} (CPU {self.cpu:.2f}); {self.ours.seconds:.1f} s (CPU {self.ours.cpu:.1f}) against "
            f"{self.bare.seconds:.1f} s (CPU {self.bare.cpu:.1f}), peak {self.ours.rss_mb:.0f} MB"
        )


def pairs(rounds: int, ours: Callable[[], Cost], bare: Callable[[], Cost]) -> Pairs:
    """Run both in turns; ratios are medians over the turns, above 1 where ours is faster."""
    taken = [(ours(), bare()) for _ in range(rounds)]
    return Pairs(
        ours=sorted((cost for cost, _ in taken), key=lambda cost: cost.seconds)[rounds // 2],
        bare=sorted((cost for _, cost in taken), key=lambda cost: cost.seconds)[rounds // 2],
        wall=statistics.median(other.seconds / cost.seconds for cost, other in taken),
        cpu=statistics.median(other.cpu / cost.cpu for cost, other in taken),
    )


@dataclass(frozen=True, slots=True)
class Stub:
    """A running stand-in for a provider."""

    url: str
    folder: Path

    def calls(self) -> list[dict[str, object]]:
        """Every call it got so far, as it logged them."""
        log = self.folder / "calls.jsonl"
        return [json.loads(line) for line in log.read_bytes().split(b"\n") if line] if log.exists() else []

    def delay(self, seconds: float) -> None:
        """Answer later from now on."""
        (self.folder / "delay").write_text(str(seconds), encoding="utf-8")

    def forget(self) -> None:
        """Empty the log."""
        (self.folder / "calls.jsonl").unlink(missing_ok=True)


class Snapshot:
    """A folder that is put back as it was; the spool, which nobody changes, is linked and not copied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = folder.with_name(f"{folder.name}-kept")
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(folder, self._kept, copy_function=_copy)

    def restore(self) -> None:
        """Put the folder back."""
        shutil.rmtree(self._folder)
        shutil.copytree(self._kept, self._folder, copy_function=_copy)


def _copy(source: str, target: str) -> None:
    (os.link if source.endswith("spool.jsonl") else shutil.copy2)(source, target)


@contextmanager
def stub(folder: Path, *options: str) -> Iterator[Stub]:
    """Start the stand-in provider in a process of its own."""
    process = subprocess.Popen(module("benchmarks.stub", str(folder), *options), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield Stub(f"http://127.0.0.1:{int(process.stdout.readline())}", folder)
    finally:
        process.terminate()
        process.wait()


def main(run: Callable[[Bench], None], *, items: int, rounds: int = 3) -> None:
    """The command line of a script: sizes, a folder, and where its figures are appended as JSON lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--items", type=int, default=items)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--folder", type=Path, help="where data is made and kept; default: a temporary folder")
    parser.add_argument("--figures", type=Path, help="append the figures to this file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="batchctl-bench-") as temporary:
        bench = Bench(given.items, given.rounds, (given.folder or Path(temporary)).absolute())
        run(bench)
    if given.figures:
        with given.figures.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(asdict(figure)) + "\n" for figure in bench.figures)
