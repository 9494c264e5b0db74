"""Fixtures for every floor: a simulator on loopback and the command line run as a user would."""

from __future__ import annotations

import contextlib
import gc
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from batchctl.simulator import SimulatorConfig, SimulatorThread

# Explaining a failure traces every line: on Python 3.11 that makes each example several times slower, even one that
# passes. A deadline for one example measures the machine, not the code.
settings.register_profile(
    "batchctl", max_examples=60, deadline=None, phases=[phase for phase in Phase if phase is not Phase.explain]
)
settings.load_profile("batchctl")


def pytest_collection_finish() -> None:
    """What is loaded by now stays to the end: looking through it again and again took a tenth of the suite's time."""
    gc.freeze()
    gc.set_threshold(20_000)


def pytest_report_header() -> str:
    """The versions that decide how a test can fail."""
    import sqlite3
    from importlib.metadata import version

    packages = ", ".join(f"{name} {version(name)}" for name in ("anthropic", "openai", "sqlite-utils"))
    return f"sqlite {sqlite3.sqlite_version}, {packages}"


@dataclass(frozen=True)
class Ran:
    """What one command said."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.split("\n") if line]


def run_command(*arguments: str) -> Ran:
    """Run the command line in this process."""
    from batchctl.cli.main import main

    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    err = io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as stop:
            code = int(stop.code or 0)
    return Ran(code, raw.getvalue().decode("utf-8"), err.getvalue())


@dataclass
class Desk:
    """A folder to work in, a simulator, and the commands.

    Args:
        speed: simulated seconds a second; 0 lets only `simulator.advance` move the clock.
    """

    folder: Path
    simulator: SimulatorThread
    provider: str = "anthropic"

    def __call__(self, *arguments: str, code: int | None = 0) -> Ran:
        """Run `batchctl` with these arguments; its exit code must be `code`."""
        ran = run_command("--state", str(self.folder / "state.db"), *arguments)
        assert code is None or ran.code == code, f"exit {ran.code}, wanted {code}\n{ran.out}\n{ran.err}"
        return ran

    def items(self, items: list[dict[str, Any]] | int, name: str = "items.jsonl") -> str:
        """Write an item list; a number makes that many plain ones."""
        if isinstance(items, int):
            items = [{"id": f"i{number}", "text": f"text of item {number}"} for number in range(1, items + 1)]
        path = self.folder / name
        path.write_text("".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items), "utf-8")
        return str(path)

    @property
    def prompt(self) -> str:
        """A prompt file whose answers tell which prompt they belong to."""
        path = self.folder / "prompt.txt"
        path.write_text("Answer this: {{ text }}\n", "utf-8")
        return str(path)

    def start(self, verb: str, items: str, *more: str, name: str = "r", code: int | None = 0) -> Ran:
        """`submit` or `run` with the usual options."""
        return self(
            verb, items, "--provider", self.provider, "--model", MODELS[self.provider], "--prompt", self.prompt,
            "--name", name, "--out", str(self.folder / "out"), *FAST, *more, code=code,
        )  # fmt: skip

    def lines(self, file: str) -> list[Any]:
        """A result file as JSON."""
        path = self.folder / "out" / file
        return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]

    def status(self, name: str = "r") -> dict[str, Any]:
        """`status --json` of one run."""
        status: dict[str, Any] = self("status", name, "--json").rows[0]
        return status

    def creates(self) -> int:
        """How many batch creates reached the provider."""
        return int(self.simulator.stats()["calls"].get(f"{self.provider}.batches.create", 0))

    def balanced(self, name: str = "r") -> dict[str, Any]:
        """The run's status, after checking every promise that holds at all times."""
        status = self.status(name)
        counts = status["counts"]
        assert counts["planned"] == counts["succeeded"] + counts["failed"] + counts["open"]
        results = [line["id"] for line in self.lines("results.jsonl")]
        errors = [line["id"] for line in self.lines("errors.jsonl")]
        assert len(results) == counts["succeeded"]
        assert len(errors) == counts["failed"]
        seen = [item_id for item_id in results + errors if item_id is not None]
        assert len(seen) == len(set(seen)), "an item stands in the files twice"
        assert self.simulator.violations() == [], "an item was paid for twice"
        return status


MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-5-mini"}
FAST = ("--interval", "0.005s", "--settle-after", "0.1s")


@pytest.fixture
def make_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Desk]]:
    """Makes a desk with its own simulator."""
    with contextlib.ExitStack() as stack:

        def make(provider: str = "anthropic", faults: dict[str, Any] | None = None, **config: Any) -> Desk:
            config.setdefault("speed", 0.0)
            simulator = stack.enter_context(SimulatorThread(SimulatorConfig(faults=faults or {}, **config)))
            monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key-anthropic")
            monkeypatch.setenv("ANTHROPIC_BASE_URL", simulator.anthropic_base_url)
            monkeypatch.setenv("OPENAI_API_KEY", "test-key-openai")
            monkeypatch.setenv("OPENAI_BASE_URL", simulator.openai_base_url)
            return Desk(tmp_path, simulator, provider)

        yield make
