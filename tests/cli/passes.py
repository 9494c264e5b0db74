"""Passes with the simulated clock moved on between."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from batchctl.core.errors import BatchctlError
from batchctl.runs import verbs
from batchctl.runs.context import Context, utc_now
from tests.conftest import Desk

LATER = 3600.0  # simulated seconds after which every batch has ended


def pass_until_quiet(desk: Desk, *, passes: int = 6) -> None:
    """Polls with resubmission, the clock moved on between."""
    for _ in range(passes):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit")


def poll_at(desk: Desk, hours: float) -> int:
    """One pass some hours from now by this machine's clock; the exit code it would end with."""
    ctx = Context(desk.folder / "state.db", lambda _: None, now=lambda: utc_now() + timedelta(hours=hours))
    try:
        asyncio.run(verbs.poll(ctx, ["r"], wait=False, resubmit=False))
    except BatchctlError as error:
        return error.exit_code
    return 0


def events(desk: Desk, kind: str) -> list[dict[str, Any]]:
    """The run's events of a kind."""
    return [row for row in desk("events", "r", "--json").rows if row["kind"] == kind]
