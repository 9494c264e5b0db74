"""The sliding window: workers pull items through one door that keeps limits, order and size of what is in flight.

An item is admitted the moment there is room for it; the only barrier is the drain at the end. While the door waits it
asks its source for nothing.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from batchctl.core.errors import ProviderError
from batchctl.core.limiter import Taken, TooLargeError
from batchctl.providers.base import Completion
from batchctl.runs.fanout_cost import Purse
from batchctl.runs.fanout_judge import Again, Judge
from batchctl.runs.fanout_progress import Meter
from batchctl.runs.fanout_source import Items
from batchctl.runs.fanout_throttle import Throttle
from batchctl.state.rows import Member

Send = Callable[[Member], Awaitable[Completion]]


@dataclass(slots=True)
class _Call:
    """One attempt in flight."""

    member: Member
    taken: Taken
    at: float


class Engine:
    """Sends every item of a source once there is room, until all have an outcome or there is a reason to stop.

    Args:
        send: makes one call; raises ProviderError.
        purse: keeps the cost under a cap; None without one.

    Attributes:
        error: what broke the work, if anything did.
    """

    def __init__(
        self, items: Items, send: Send, *, throttle: Throttle, judge: Judge, meter: Meter, purse: Purse | None
    ) -> None:
        self._items = items
        self._send = send
        self._throttle = throttle
        self._judge = judge
        self._meter = meter
        self._purse = purse
        self._clock = asyncio.get_running_loop().time
        self._door = asyncio.Lock()
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._workers: set[asyncio.Task[None]] = set()
        self._flying: dict[int, _Call] = {}
        self._held: Member | None = None  # the item at the door
        self._wait: float | None = None  # seconds until it may go, None while only news tell
        self._later: list[tuple[float, int, Member]] = []  # items that wait for another try, a heap
        self._closed = False
        self.error: Exception | None = None

    @property
    def in_flight(self) -> int:
        """Calls that have no answer yet."""
        return len(self._flying)

    def oldest(self) -> float:
        """Seconds since the oldest call in flight was sent."""
        first = next(iter(self._flying.values()), None)
        return 0.0 if first is None else self._clock() - first.at

    def wake(self) -> None:
        """Look again: the source may have more."""
        self._news.set()

    def close(self) -> None:
        """Admit nothing more; what is in flight ends by itself."""
        self._closed = True
        self._news.set()

    def fail(self, error: Exception) -> None:
        """Stop because the work itself broke; the first reason stays."""
        self.error = self.error or error
        self.close()

    def abort(self) -> None:
        """Give up what is in flight."""
        self.close()
        for worker in self._workers:
            worker.cancel()

    async def work(self) -> None:
        """Run to the end; what became of it is in the store, in the judge's reason and in `error`."""
        self._grow()
        try:
            await self._over.wait()
        finally:
            self.abort()
            await asyncio.gather(*self._workers, return_exceptions=True)

    def _grow(self) -> None:
        """Have a worker for every place in the window."""
        while len(self._workers) < self._throttle.size:
            worker = asyncio.create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._gone)

    def _gone(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and isinstance(error := worker.exception(), Exception):
            self.fail(error)
        if not self._workers:
            self._over.set()

    async def _work(self) -> None:
        while (call := self._next() or await self._wait_for_next()) is not None:
            try:
                completion = await self._send(call.member)
            except ProviderError as error:
                self._leave(call)
                self._throttle.lost(call.taken)
                again = self._judge.refused(call.member, error, self._clock())
            except BaseException:
                self._leave(call)
                raise
            else:
                self._leave(call)
                again = self._judge.answered(call.member, completion, call.taken, call.at, self._clock())
            self._go_on(again)

    def _leave(self, call: _Call) -> None:
        del self._flying[call.member.seq]
        if self._purse is not None:
            self._purse.settle(call.member.seq)
        self._news.set()

    def _go_on(self, again: Again | None) -> None:
        """Put an item back that is to be tried again, and stop where there is a reason."""
        if again is not None:
            heapq.heappush(self._later, (self._clock() + again.seconds, again.member.seq, again.member))
        if self._judge.reason is not None:
            self.close()
        elif len(self._workers) < self._throttle.size and not self._closed:
            self._grow()

    def _next(self) -> _Call | None:
        """The next call, where there is room for it now and nobody waits at the door."""
        return None if self._door.locked() else self._admitted()

    async def _wait_for_next(self) -> _Call | None:
        """Through the door, one after the other; None when there is nothing to do any more."""
        async with self._door:
            while not self._closed:
                if (call := self._admitted()) is not None:
                    return call
                if not self._closed:
                    await self._pause(self._wait)
        return None

    def _admitted(self) -> _Call | None:
        """The call of the item at the door, where it may go now; else `_wait` says how long it cannot."""
        while not self._closed:
            self._wait = None
            if len(self._flying) >= self._throttle.size:
                return None
            now = self._clock()
            if (member := self._pick(now)) is None:
                if self._later:
                    self._wait = self._later[0][0] - now
                elif self._items.ended and not self._flying:
                    self.close()
                return None
            if self._may_go(member, now):
                return self._admit(member, now)
            if self._held is not None:
                return None
        return None

    def _pick(self, now: float) -> Member | None:
        """The item at the door, else one whose wait is over, else the next of the source."""
        if self._held is not None:
            return self._held
        if self._later and self._later[0][0] <= now:
            return heapq.heappop(self._later)[2]
        member = self._items.take()
        self._meter.admitted += member is not None
        return member

    def _may_go(self, member: Member, now: float) -> bool:
        """Whether an item may go now; one that has to wait is held at the door, one that never can is refused."""
        self._held = member
        try:
            ready = self._throttle.ready_at(now, member.tokens)
        except TooLargeError as error:
            self._held = None
            self._judge.too_large(member, str(error))
            self._go_on(None)
            return False
        if ready > now:
            self._wait = ready - now
            return False
        if self._purse is None or self._purse.reserve(member):
            return True
        self._wait = _LONG
        if not self._flying:
            self._judge.stop(self._purse.reason(member), "raise --max-cost, or lower --max-tokens in a new run")
            self.close()
        return False

    def _admit(self, member: Member, now: float) -> _Call:
        self._held = None
        self._meter.calls += 1
        call = self._flying[member.seq] = _Call(member, self._throttle.take(now), now)
        if len(self._workers) < self._throttle.size:
            self._grow()
        return call

    async def _pause(self, seconds: float | None) -> None:
        """Wait for news, some seconds at most; whoever has the door waits for all."""
        if self._closed:
            return
        self._news.clear()
        loop = asyncio.get_running_loop()
        timer = None if seconds is None else loop.call_later(max(seconds, 0.0), self._news.set)
        try:
            await self._news.wait()
        finally:
            if timer is not None:
                timer.cancel()


_LONG = 60.0  # seconds; news come before
