"""What a command loads before it does anything."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from batchctl.cli.main import COMMANDS
from batchctl.state.store import Store

SLOW = {"anthropic", "openai", "aiohttp", "asyncio", "jinja2", "jsonschema", "sqlite_utils", "rich", "genai_prices"}


@pytest.mark.parametrize("arguments", [["--help"], ["status"]])
def test_slow_modules_are_not_loaded_to_look(arguments: list[str], tmp_path: Path) -> None:
    """Help and status start at once: no SDK, no event loop, no template engine."""
    Store.open(tmp_path / "state.db").close()
    command = [sys.executable, "-X", "importtime", "-m", "batchctl", "--state", str(tmp_path / "state.db"), *arguments]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    names = {line.rpartition("|")[2].strip().partition(".")[0] for line in loaded.splitlines()}
    assert "click" in names
    assert not names & SLOW


@pytest.mark.parametrize("name", COMMANDS)
def test_every_listed_command_is_there(name: str) -> None:
    """The list of commands is kept apart from them, so that help imports none."""
    place, line = COMMANDS[name]
    module, attribute = place.split(":")
    assert getattr(importlib.import_module(f"batchctl.cli.{module}"), attribute).name == name
    assert line.endswith(".")
