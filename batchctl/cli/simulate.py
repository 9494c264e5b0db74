"""The simulator from the command line, on its own or inside a command that works."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from batchctl.cli.env import option
from batchctl.cli.options import FILE
from batchctl.core.errors import InputError

BATCH_SECONDS = 2400.0  # simulated; some real tenths of a second at the speed of --simulate


@click.command()
@option("--port", type=click.IntRange(0, 65535), default=8089, show_default=True, help="0 takes a free one.")
@option("--data", type=click.Path(file_okay=False, path_type=Path), help="Keep everything in this folder.")
@option("--speed", type=click.FloatRange(min=0), default=1.0, show_default=True, help="Simulated seconds a second.")
@option("--faults", type=FILE, help="Fault file (docs/simulator.md).")
@option("--seed", type=int, default=0, show_default=True, help="Makes chance repeatable.")
def simulate(port: int, data: Path | None, speed: float, faults: Path | None, seed: int) -> None:
    """Serve both providers' APIs on this machine, with faults on request."""
    from batchctl.simulator import SimulatorConfig, serve

    try:
        serve(SimulatorConfig(port=port, data=data, speed=speed, faults=read_rules([faults]), seed=seed))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        raise InputError(
            f"port {port} cannot be used: {os.strerror(error.errno)}",
            hint="--port N names another, --port 0 a free one",
        ) from None


def read_rules(paths: Iterable[Path | None]) -> dict[str, Any]:
    """The rules of fault files, one after the other.

    Raises:
        InputError: a file the simulator would not obey.
    """
    rules: dict[str, Any] = {}
    for path in paths:
        if path is None:
            continue
        from batchctl.simulator.config import read_faults
        from batchctl.simulator.faults import check_faults

        try:
            read = read_faults(path)
            check_faults(read)
        except (ValueError, OSError) as error:
            raise InputError(f"fault file {path}: {error}", hint="docs/simulator.md shows examples") from None
        for section, entries in read.items():
            rules.setdefault(section, []).extend(entry for entry in entries if entry not in rules[section])
    return rules


@contextmanager
def inside(data: Path, faults: dict[str, Any], speed: float) -> Iterator[Mapping[str, str]]:
    """A simulator inside this process, on a free port; gives its address by provider."""
    from batchctl.simulator import SimulatorConfig, SimulatorThread

    config = SimulatorConfig(data=data, speed=speed, faults=faults, batch_seconds=BATCH_SECONDS, batch_spread=0.4)
    with SimulatorThread(config) as simulator:
        yield {"anthropic": simulator.anthropic_base_url, "openai": simulator.openai_base_url}
