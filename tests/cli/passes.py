"""Passes with the simulated clock moved on between."""

from __future__ import annotations

from tests.conftest import Desk

LATER = 3600.0  # simulated seconds after which every batch has ended


def pass_until_quiet(desk: Desk, *, passes: int = 6) -> None:
    """Polls with resubmission, the clock moved on between."""
    for _ in range(passes):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit")
