"""A local server that speaks both providers' HTTP APIs, with faults on request and a ledger of what it accepted.

It shares nothing with the client and is reached only over HTTP, so that tests run through the real SDKs.
docs/simulator.md describes settings, faults and control endpoints; `batchctl.simulator.faults` the fault file in full.
"""

from __future__ import annotations

from batchctl.simulator.answers import answer, prompt_digest
from batchctl.simulator.config import SimulatorConfig, SyncLimits, read_faults
from batchctl.simulator.server import Simulator, serve
from batchctl.simulator.thread import SimulatorThread

__all__ = [
    "Simulator",
    "SimulatorConfig",
    "SimulatorThread",
    "SyncLimits",
    "answer",
    "prompt_digest",
    "read_faults",
    "serve",
]
