"""The sync lane in virtual time: a loop whose waits pass at once, and a provider that counts like a strict one."""

from __future__ import annotations

import asyncio
import random
import selectors
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchctl.core.errors import Fault, ProviderError
from batchctl.core.events import Event
from batchctl.core.model import Answer, Outcome, Usage
from batchctl.providers.base import Completion, RateHeaders
from batchctl.runs.context import Context
from batchctl.runs.fanout_running import drive
from batchctl.runs.held import HeldRun, hold
from batchctl.runs.planning import PlanRequest, make_run
from batchctl.runs.settings import Settings
from batchctl.state.store import Store


class _Skipping(selectors.SelectSelector):
    """Never waits: hands the seconds it should have waited to the loop's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Look once, and let the time pass."""
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen: every task waits"
            self.now += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes as fast as its work is done."""

    def __init__(self) -> None:
        self._skipping = _Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        """Virtual seconds since the start."""
        return self._skipping.now


@dataclass
class Provider:
    """Answers after a while, and refuses what would bring the last 60 seconds over a limit.

    Args:
        usage: what the request of an item really takes.
        latency: seconds from arrival to answer, drawn for each call.
        limits: requests and tokens in any 60 seconds.
        fail: an error to raise for a call, from (custom id, its number among all calls, seconds).
    """

    usage: Callable[[str], Usage]
    latency: Callable[[random.Random], float]
    limits: Mapping[str, int] = field(default_factory=dict)
    fail: Callable[[str, int, float], ProviderError | None] = lambda _id, _number, _now: None
    rate: RateHeaders = field(default_factory=RateHeaders)
    way: tuple[float, float] = (0.02, 0.3)
    seed: int = 1
    name: str = "anthropic"
    starts: list[tuple[float, str]] = field(default_factory=list)
    busy: float = 0.0
    refused: int = 0
    worst: dict[str, float] = field(default_factory=dict)
    used: int = 0
    most_in_flight: int = 0
    _in_flight: int = 0
    _window: deque[tuple[float, dict[str, int]]] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._sums = dict.fromkeys(self.limits, 0)

    async def complete(self, custom_id: str, *_request: object, **_options: object) -> Completion:
        """One call."""
        clock = asyncio.get_running_loop().time
        start = clock()
        self.starts.append((start, custom_id))
        number = len(self.starts)
        self._in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            await asyncio.sleep(self._chance.uniform(*self.way))
            if (error := self.fail(custom_id, number, start)) is not None:
                raise error
            usage = self.usage(custom_id)
            self._admit(clock(), usage)
            await asyncio.sleep(self.latency(self._chance))
        finally:
            self._in_flight -= 1
            self.busy += clock() - start
        return Completion(Answer(custom_id, Outcome.SUCCEEDED, "a", "end_turn", "m", usage), self.rate)

    def _admit(self, now: float, usage: Usage) -> None:
        while self._window and self._window[0][0] <= now - 60:
            for name, amount in self._window.popleft()[1].items():
                self._sums[name] -= amount
        amounts = {"requests": 1, "tokens": usage.input_tokens, "output": usage.output_tokens}
        amounts = {name: amounts[name] for name in self.limits}
        if any(self._sums[name] + amount > self.limits[name] for name, amount in amounts.items()):
            self.refused += 1
            raise ProviderError("too many", fault=Fault.RETRY, status=429, type="rate_limit_error")
        self._window.append((now, amounts))
        for name, amount in amounts.items():
            self._sums[name] += amount
            self.worst[name] = max(self.worst.get(name, 0.0), self._sums[name] / self.limits[name])
        self.used += usage.input_tokens

    async def aclose(self) -> None:
        """Nothing to close."""


@dataclass
class Played:
    """What a run in virtual time came to."""

    seconds: float
    events: list[Event]
    error: Exception | None


@contextmanager
def planned(folder: Path, tokens: list[int], **settings: Any) -> Iterator[HeldRun]:
    """A run of one item per number, whose requests count as so many estimated tokens."""
    items = folder / "items.jsonl"
    items.write_text("".join(f'{{"id": "i{number}", "text": "t"}}\n' for number in range(1, len(tokens) + 1)), "utf-8")
    events: list[Event] = []
    ctx = Context(state_path=folder / "state.db", emit=events.append, random=random.Random(7), cpu=lambda: 0.0)
    options = Settings("anthropic", "/v1/messages", "claude-sonnet-4-5", prompt="{{ text }}", max_tokens=64, **settings)
    request = PlanRequest("r", (str(items),), options, str(folder / "out"))
    with Store.open(ctx.state_path) as store:
        make_run(ctx, request, lambda: store, packed=False)
    with sqlite3.connect(folder / "state.db") as database:
        database.executemany("UPDATE items SET tokens = ? WHERE seq = ?", [(n, seq) for seq, n in enumerate(tokens, 1)])
    database.close()
    with Store.open(ctx.state_path) as store, hold(ctx, store, "r") as run:
        yield run


def play(run: HeldRun, provider: Provider, limit: float = 1e9) -> Played:
    """Drive a run in virtual time; `limit` seconds at most."""
    events: list[Event] = []
    run.ctx.emit = events.append

    async def work() -> Played:
        error: Exception | None = None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(limit):
                await drive(run, provider, None)
        except Exception as caught:  # noqa: BLE001  # what came of it is the result
            error = caught
        return Played(loop.time(), events, error)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work())
