"""A simulator on a thread of its own, for tests and for `--simulate`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from batchctl.simulator.config import SimulatorConfig
from batchctl.simulator.server import Simulator

_T = TypeVar("_T")


class SimulatorThread:
    """Context manager around a running simulator; every method may be called from any thread."""

    def __init__(self, config: SimulatorConfig | None = None) -> None:
        self.config = config or SimulatorConfig()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="simulator", daemon=True)
        self._simulator: Simulator | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._stop: asyncio.Event | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the thread and return once it listens."""
        self._thread.start()
        self._ready.wait()
        if self._failure:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Stop listening and end the thread."""
        if self._stop and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()

    @property
    def url(self) -> str:
        """Root address."""
        return self._running().url

    @property
    def anthropic_base_url(self) -> str:
        """Address for the Anthropic SDK."""
        return self.url

    @property
    def openai_base_url(self) -> str:
        """Address for the OpenAI SDK."""
        return f"{self.url}/v1"

    def now(self) -> float:
        """Virtual seconds since the epoch."""
        return self._running().world.services.clock.now()

    def ledger(self) -> list[dict[str, Any]]:
        """Give every acceptance, in order."""
        return self._ask(lambda: list(self._running().world.ledger()))

    def violations(
        self, *, with_custom_id: bool = False, copies: Mapping[str, int] | None = None
    ) -> list[dict[str, Any]]:
        """List the items paid twice; `batchctl.simulator.ledger` says what that means."""
        return self._ask(lambda: self._running().world.violations(with_custom_id=with_custom_id, copies=copies))

    def stats(self) -> dict[str, Any]:
        """Count calls, statuses, faults, batches and what became of requests."""
        return self._ask(self._running().world.stats)

    def state(self) -> dict[str, Any]:
        """Show where every batch stands, and the clock."""
        return self._ask(self._running().world.state)

    def set_faults(self, faults: dict[str, Any]) -> None:
        """Replace the fault rules."""
        self._ask(lambda: self._running().world.set_faults(faults))

    def advance(self, seconds: float) -> None:
        """Push the virtual clock forward."""
        self._ask(lambda: self._running().world.advance(seconds))

    def _ask(self, question: Callable[[], _T]) -> _T:
        async def ask() -> _T:
            return question()

        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result()

    def _running(self) -> Simulator:
        assert self._simulator is not None, "the simulator was not started"
        return self._simulator

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._live())

    async def _live(self) -> None:
        self._stop = asyncio.Event()
        try:
            self._simulator = Simulator(self.config)
            await self._simulator.start()
        except Exception as failure:  # noqa: BLE001 - handed to the thread that waits in `start`
            self._failure = failure
            return
        finally:
            self._ready.set()
        await self._stop.wait()
        await self._simulator.stop()
