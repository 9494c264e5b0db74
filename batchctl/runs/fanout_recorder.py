"""Makes outcomes last: each line goes to the kernel at once, to disk and store with all others of a moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from batchctl.core.model import Answer, Lane, Outcome
from batchctl.core.retry import Decision
from batchctl.runs.held import HeldRun
from batchctl.runs.recording import Slice
from batchctl.state.rows import Member

GROUP = 0.1  # seconds of outcomes that are synced and counted together; what a power cut may cost


class Recorder:
    """Takes outcomes.

    Args:
        failed: gets what went wrong when a group could not be counted.
    """

    def __init__(self, run: HeldRun, failed: Callable[[Exception], None]) -> None:
        self._run = run
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._slice = Slice(run, Lane.SYNC)
        self._seqs: set[int] = set()
        self._due: asyncio.TimerHandle | None = None
        self._unflushed = False
        self._broken = False  # counting failed: from then on lines are written for the next process to count
        self.cost_usd = run.refresh().cost_usd

    def take(self, member: Member, answer: Answer, decision: Decision) -> Outcome:
        """Write an outcome down; once the loop has turned, a killed process loses it no more.

        Args:
            decision: what happens to the item where it did not succeed.

        Returns:
            The outcome after the reply check.

        Raises:
            StorageError: it could not be written.
        """
        if member.seq in self._seqs:
            self.commit()  # an item changes once in a transaction
        part = self._slice
        before = part.totals.cost_usd
        outcome = part.take(member, answer, decision)
        self.cost_usd += part.totals.cost_usd - before
        self._seqs.add(member.seq)
        loop = asyncio.get_running_loop()
        if not self._unflushed:
            self._unflushed = True
            loop.call_soon(self._flush)
        if self._due is None and not self._broken:
            self._due = loop.call_later(GROUP, self._commit_later)
        return outcome

    def commit(self) -> None:
        """Put everything taken so far on the disk and count it; after a failure, only write what calls in flight bring.

        Raises:
            StorageError: it could not be written.
        """
        if self._due is not None:
            self._due.cancel()
            self._due = None
        if self._broken:
            self._flush()
            return
        part, self._slice = self._slice, Slice(self._run, Lane.SYNC)
        self._seqs.clear()
        try:
            part.commit()
        except BaseException:
            self._broken = self._slice.uncounted = True
            raise

    def _flush(self) -> None:
        """Hand the lines of this turn of the loop to the kernel, all at once."""
        self._unflushed = False
        try:
            self._run.results.flush()
            self._run.errors.flush()
        except Exception as error:  # noqa: BLE001  # as below
            self._failed(error)

    def _commit_later(self) -> None:
        self._due = None
        try:
            self.commit()
        except Exception as error:  # noqa: BLE001  # a timer has no caller: the engine raises it
            self._failed(error)
