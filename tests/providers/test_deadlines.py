"""Calls that take too long, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from batchctl.providers.deadlines import Deadlines
from tests.fanout.virtual import VirtualLoop


async def call(deadlines: Deadlines, timeout: float, seconds: float) -> tuple[str, float]:
    """A call that takes some seconds: how it ended, and when."""
    clock = asyncio.get_running_loop().time
    deadline = deadlines.start(timeout)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        return ("late" if deadline.passed else "cancelled"), clock()
    finally:
        deadlines.stop(deadline)
    return "answered", clock()


def play(*calls: tuple[float, float], cancel_at: float | None = None) -> list[tuple[str, float]]:
    """Calls of (timeout, seconds) side by side; all are cancelled from outside at a moment."""

    async def work() -> list[tuple[str, float]]:
        deadlines = Deadlines()
        tasks = [asyncio.create_task(call(deadlines, *one)) for one in calls]
        if cancel_at is not None:
            await asyncio.sleep(cancel_at)
            for task in tasks:
                task.cancel()
        return await asyncio.gather(*tasks)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work())


def test_each_call_has_its_own_deadline() -> None:
    """Whatever the order they begin in, each ends at its own time and the others go on (field report 159)."""
    ends = play((5, 9), (1, 9), (3, 9), (9, 2), (1, 0.5), (100, 20))
    assert ends == [("late", 5), ("late", 1), ("late", 3), ("answered", 2), ("answered", 0.5), ("answered", 20)]


@pytest.mark.parametrize("at", [1.0, 2.0])
def test_a_cancel_from_outside_is_no_deadline(at: float) -> None:
    """Who stops the program gets its tasks back, also in the very moment of the deadline."""
    assert play((2, 9), cancel_at=at) == [("cancelled", at)]


def test_a_task_that_was_late_is_watched_again() -> None:
    """A worker goes on with the next call, and no cancel stays behind."""

    async def work() -> list[tuple[str, float]]:
        deadlines = Deadlines()
        ends = [await call(deadlines, 1, seconds) for seconds in (9, 0.5, 9)]
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return ends

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(work()) == [("late", 1), ("answered", 1.5), ("late", 2.5)]
