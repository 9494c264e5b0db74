"""Keeps the sync lane under --max-cost, even where every answer in flight is as long as it may be."""

from __future__ import annotations

from collections.abc import Callable

from batchctl.core.model import Lane
from batchctl.runs.budget import committed, highest_cost
from batchctl.runs.held import HeldRun
from batchctl.state.rows import Member


class Purse:
    """What may still be spent.

    Args:
        spent: gives what the run has cost so far, in dollars.

    Raises:
        SystemicError: the model has no known price.
    """

    def __init__(self, run: HeldRun, cap: float, spent: Callable[[], float]) -> None:
        self._run = run
        self._cap = cap
        self._spent = spent
        self._reserved: dict[int, float] = {}
        self._batches = committed(run)
        self._highest(0)

    def reserve(self, member: Member) -> bool:
        """Set aside the most an item may cost; false where that could take the run over the cap."""
        most = self._highest(member.tokens)
        if self._spent() + self._batches + sum(self._reserved.values()) + most > self._cap:
            return False
        self._reserved[member.seq] = most
        return True

    def settle(self, seq: int) -> None:
        """Give back what was set aside: what it cost is known."""
        self._reserved.pop(seq, None)

    def reason(self, member: Member) -> str:
        """Why an item may not go."""
        return (
            f"the next item could cost up to ${self._highest(member.tokens):,.4f}, ${self._spent():,.4f} is spent: "
            f"over the cap of ${self._cap:,.4f}"
        )

    def _highest(self, tokens: int) -> float:
        return highest_cost(self._run, tokens, Lane.SYNC)
