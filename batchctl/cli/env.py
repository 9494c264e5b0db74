"""Options of every kind: each can also be given by its variable, as BATCHCTL_MAX_REQUESTS for `--max-requests`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from batchctl.core.errors import InputError

Decorator = Callable[[Any], Any]


def option(*names: str, **attributes: Any) -> Decorator:
    """A click option with its variable, named after its long form unless `envvar` names another."""
    long = next(name for name in names if name.startswith("--"))
    attributes.setdefault("envvar", "BATCHCTL_" + long.removeprefix("--").upper().replace("-", "_"))
    return click.option(*names, **attributes)


def state_options(ctx: click.Context) -> dict[str, Any]:
    """The options given before the command."""
    options = ctx.obj
    if not isinstance(options, dict):
        raise InputError("no options")
    return options
