"""Names of runs: made from the input's stem and the settings, so that a repeated command finds its own run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from batchctl.runs.settings import Settings
from batchctl.state.store import Store

STEM_LENGTH = 40


def made_name(items: Sequence[str], settings: Settings) -> str:
    """The name of the run of these inputs with these settings."""
    stem = "stdin" if items[0] == "-" else Path(items[0]).name.split(".")[0]
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:STEM_LENGTH] or "run"
    return f"{plain}-{settings.fingerprint()[:6]}"


def free_name(state_path: Path, name: str) -> str:
    """The name itself, or with the first number that no run has."""
    if not state_path.exists():
        return name
    with Store.open(state_path, readonly=True) as store:
        taken = {row.name for row in store.runs.all()}
    if name not in taken:
        return name
    number = 2
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"
