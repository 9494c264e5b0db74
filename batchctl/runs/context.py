"""What every verb is given: clock, randomness, the event sink and the wish to stop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from batchctl.core.errors import BatchctlError
from batchctl.core.events import Emit


class InterruptedRunError(BatchctlError):
    """A signal asked to stop; state is saved."""

    def __init__(self, signal_number: int, message: str, *, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = 128 + signal_number


class Stop:
    """The wish to stop: set once by the first signal, looked at between steps."""

    def __init__(self) -> None:
        self.signal_number: int | None = None
        self._event = asyncio.Event()
        self._at_once: str | None = None

    def request(self, signal_number: int, loop: asyncio.AbstractEventLoop) -> None:
        """Ask for a stop, also from a signal handler; the first signal decides the exit code."""
        if self.signal_number is None:
            self.signal_number = signal_number
        loop.call_soon_threadsafe(self._event.set)
        if self._at_once is not None:
            raise InterruptedRunError(signal_number, self._at_once, hint="give the same command again to start over")

    @contextmanager
    def at_once(self, message: str) -> Iterator[None]:
        """Inside, a stop raises where the program stands, also in a read that may wait for ever.

        Only for work that sends nothing and is taken back whole.
        """
        self._at_once = message
        try:
            yield
        finally:
            self._at_once = None

    async def wait(self, seconds: float) -> None:
        """Wait, or return early because a stop was asked for."""
        try:
            await asyncio.wait_for(self._event.wait(), timeout=max(0.0, seconds))
        except TimeoutError:
            return


def utc_now() -> datetime:
    """The wall clock, in UTC."""
    return datetime.now(UTC)


@dataclass(slots=True)
class Context:
    """The edges a verb may touch, passed in so that tests can move them.

    Args:
        state_path: the state file.
        emit: where events go.
        now: wall clock, aware and in UTC.
        monotonic: seconds that only go forward, for how long something takes.
        cpu: processor seconds this process has used.
        simulator: the simulator's address by provider, when it runs inside this process.
    """

    state_path: Path
    emit: Emit
    stop: Stop = field(default_factory=Stop)
    now: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic
    cpu: Callable[[], float] = time.process_time
    random: random.Random = field(default_factory=random.Random)
    simulator: Mapping[str, str] = field(default_factory=dict)
