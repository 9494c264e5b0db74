"""Names of runs, and where a run's working files live."""

from __future__ import annotations

import re
from pathlib import Path

from batchctl.core.errors import InputError

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_run_name(name: str) -> None:
    """Refuse a name that could not be a folder everywhere.

    Raises:
        InputError: it is no such name.
    """
    if not _RUN_NAME.fullmatch(name):
        raise InputError(
            f"{name!r} is no run name",
            hint="up to 100 letters, digits, dots, dashes and underscores, the first a letter or digit",
        )


def workdir(state_path: Path, run_name: str) -> Path:
    """The folder of a run's spool, downloads and lock, beside the state file; taking the run's lock makes it."""
    stem = state_path.stem if state_path.suffix else f"{state_path.name}.runs"
    return state_path.parent / stem / run_name
