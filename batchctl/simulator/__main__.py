"""`python -m batchctl.simulator`: the simulator as a process of its own."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from batchctl.simulator.config import SimulatorConfig, read_faults
from batchctl.simulator.server import serve


def main(arguments: list[str] | None = None) -> None:
    """Read the options and serve until stopped."""
    parser = argparse.ArgumentParser(prog="python -m batchctl.simulator", description=__doc__)
    parser.add_argument("--config", type=Path, help="JSON file with any of the settings")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int, help="0 takes a free one")
    parser.add_argument("--data", type=Path, help="folder that keeps the state over restarts")
    parser.add_argument("--speed", type=float, help="virtual seconds per real second")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--batch-seconds", type=float, help="virtual seconds a batch takes")
    parser.add_argument("--faults", type=Path, help="JSON file with fault rules")
    options = vars(parser.parse_args(arguments))
    source = options.pop("config")
    faults = options.pop("faults")
    config = SimulatorConfig.from_file(source) if source else SimulatorConfig()
    config = replace(config, **{name: value for name, value in options.items() if value is not None})
    if faults:
        config.faults = read_faults(faults)
    serve(config)


if __name__ == "__main__":
    main()
