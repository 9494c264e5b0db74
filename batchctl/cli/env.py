"""Options that can also be given by an environment variable: `--max-requests` is BATCHCTL_MAX_REQUESTS everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

Decorator = Callable[[Any], Any]


def option(*names: str, **attributes: Any) -> Decorator:
    """A click option with its variable, named after its long form."""
    long = next(name for name in names if name.startswith("--"))
    variable = "BATCHCTL_" + long.removeprefix("--").upper().replace("-", "_")
    return click.option(*names, envvar=variable, **attributes)
