"""What every part of the simulator shares: settings, time, storage, the ledger and the faults in force."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass
from math import exp

from batchctl.simulator.blobs import BlobStore
from batchctl.simulator.clock import VirtualClock
from batchctl.simulator.codec import short_hash
from batchctl.simulator.config import SimulatorConfig
from batchctl.simulator.faults import Faults
from batchctl.simulator.journal import Journal
from batchctl.simulator.ledger import Ledger


@dataclass(slots=True)
class Services:
    """The shared parts; `faults` and `clock` are replaced while running."""

    config: SimulatorConfig
    clock: VirtualClock
    journal: Journal
    blobs: BlobStore
    ledger: Ledger
    faults: Faults


def new_id(prefix: str) -> str:
    """Make an id that no other simulator gives out, so that a client's old state never meets it again."""
    return prefix + secrets.token_hex(12)


def log_normal(median: float, sigma: float, *parts: object) -> float:
    """Draw a log-normal duration that depends on the parts only."""
    if sigma <= 0:
        return median
    source = random.Random(short_hash(*parts))  # noqa: S311 - repeatable, not secret
    return median * exp(source.gauss(0.0, sigma))
