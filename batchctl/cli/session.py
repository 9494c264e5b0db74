"""What surrounds a command that works: context, event renderers, signals, the simulator inside, one event loop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from batchctl.cli.sinks import fan_out, sinks_for
from batchctl.core.events import Emit
from batchctl.runs.context import Context

SIMULATOR_SPEED = 3600.0  # simulated seconds a second: a day's deadline passes in 24 s


def work(
    options: dict[str, Any],
    verb: Callable[[Context], Awaitable[Any]],
    *,
    simulate: bool = False,
    faults: Path | None = None,
    several: bool = False,
) -> Any:
    """Run one verb to its end, with everything it needs around it; returns what the verb returns.

    Args:
        several: it works on several runs.
    """
    with ExitStack() as stack:
        emit = fan_out(stack.enter_context(sinks_for(options, several=several)))
        addresses = stack.enter_context(_simulator(options["state"], faults)) if simulate else {}
        return asyncio.run(_run(options["state"], verb, emit, addresses))


async def _run(state: Path, verb: Callable[[Context], Awaitable[Any]], emit: Emit, addresses: Mapping[str, str]) -> Any:
    ctx = Context(state_path=state, emit=emit, simulator=addresses)
    with _signals(ctx, asyncio.get_running_loop()):
        return await verb(ctx)


@contextmanager
def _signals(ctx: Context, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """First signal: finish the step at hand and save. Second: leave at once, which loses nothing either.

    Handlers of the loop would wait for it, and reading a large input keeps it busy for minutes.
    """

    def on_signal(number: int, _frame: object) -> None:
        if ctx.stop.signal_number is not None:
            os._exit(128 + number)
        ctx.stop.request(number, loop)
        os.write(2, b"batchctl: stopping after this step; once more to stop at once\n")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, on_signal) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _simulator(state: Path, faults: Path | None) -> Iterator[Mapping[str, str]]:
    """The simulator in this process; its data beside the state file, so that a later command meets the same batches."""
    from batchctl.cli.simulate import inside

    with inside(state.parent / f"{state.stem}-simulator", faults, SIMULATOR_SPEED) as urls:
        yield urls
