"""Passes with the simulated clock moved on between, and what they leave."""

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


def write(desk: Desk, data: bytes, name: str = "items.jsonl") -> str:
    """An input file with exactly these bytes."""
    path = desk.folder / name
    path.write_bytes(data)
    return str(path)


def settle(desk: Desk, items: str, *more: str, passes: int = 1) -> dict[str, Any]:
    """Submit and bring a run home; its status."""
    desk.start("submit", items, *more)
    pass_until_quiet(desk, passes=passes)
    return desk.balanced()


def answers(desk: Desk) -> dict[str, str]:
    """The answers by item."""
    return {line["id"]: line["text"] for line in desk.lines("results.jsonl")}


def spool(desk: Desk) -> list[bytes]:
    """The request lines as they go to the provider; the file ends with a newline."""
    data = (desk.folder / "state" / "r" / "spool.jsonl").read_bytes()
    assert data.endswith(b"\n")
    return data[:-1].split(b"\n")


def counted(planned: int, succeeded: int, failed: int) -> dict[str, int]:
    """Counts of a run."""
    return {
        "planned": planned,
        "succeeded": succeeded,
        "failed": failed,
        "open": planned - succeeded - failed,
    }
