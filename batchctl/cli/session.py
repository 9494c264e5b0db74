"""What surrounds a command that works: context, event renderers, signals, the simulator inside, one event loop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from batchctl.cli.sinks import fan_out, sinks_for
from batchctl.core.errors import BatchctlError
from batchctl.core.events import Emit, Event, Level
from batchctl.files.durable import FILE_MODE
from batchctl.files.names import workdir
from batchctl.runs.context import Context

SIMULATOR_SPEED = 3600.0  # simulated seconds a second: a day's deadline passes in 24 s


def work(
    options: dict[str, Any],
    verb: Callable[[Context], Awaitable[Any]],
    *,
    simulate: Sequence[str] = (),
    faults: Path | None = None,
    goes_on: bool = False,
    several: bool = False,
    fast: bool = False,
) -> Any:
    """Run one verb to its end, with everything it needs around it; returns what the verb returns.

    Args:
        simulate: the runs that live on the simulator.
        faults: the fault file of a simulator.
        goes_on: these runs were started before, with or without faults.
        several: it works on several runs.
        fast: it makes many calls a second, so uvloop is used where it is installed.
    """
    with ExitStack() as stack:
        sinks = stack.enter_context(sinks_for(options, several=several))
        emit = fan_out(sinks)
        stack.enter_context(_logged(fan_out(sinks[1:])))
        loop = _fast_loop() if fast else None
        if not simulate:
            return _in_loop(loop, _run(options["state"], verb, emit, {}))
        simulator = _SimulatorOnUse(stack, options["state"], simulate, faults, remembered=goes_on and not faults)
        done = _in_loop(loop, _run(options["state"], verb, emit, simulator))
        simulator.keep_faults()  # also where nothing had to be asked
        return done


@contextmanager
def _logged(log: Emit) -> Iterator[None]:
    """Write the error that ends a command into the log file as well; people are told it at the very end."""
    try:
        yield
    except BatchctlError as error:
        data = {"exit_code": error.exit_code, "hint": error.hint}
        log(Event("command.failed", error.message, level=Level.ERROR, data=data))
        raise


def _in_loop(factory: Callable[[], asyncio.AbstractEventLoop] | None, work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


def _fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop of the extra `fast`, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


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
        ctx.stop.request(signal.SIGTERM if number == signal.SIGHUP else number, loop)  # a closed terminal ends it
        with suppress(OSError):  # the terminal may be gone
            os.write(2, b"batchctl: stopping after this step; once more to stop at once\n")

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
        numbers.append(signal.SIGHUP)
    before = [signal.signal(number, on_signal) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _SimulatorOnUse(Mapping[str, str]):
    """The simulator's address by provider; it starts when the first is asked for, so a refused command leaves nothing.

    Its data is beside the state file, so that a later command meets the same batches; the faults a run was started
    with are kept among the run's own files, so that a later command meets the same faults.

    Args:
        names: the runs at work.
        faults: a fault file given now; without one, `remembered` faults of these runs are used.
    """

    def __init__(
        self, stack: ExitStack, state: Path, names: Sequence[str], faults: Path | None, *, remembered: bool
    ) -> None:
        from batchctl.cli.simulate import read_rules

        self._stack = stack
        self._data = state.parent / f"{state.stem}-simulator"
        self._kept = [workdir(state, name) / "faults.json" for name in names]
        self._given = faults
        self._remembered = remembered
        self._rules = read_rules([path for path in self._kept if path.is_file()] if remembered else [faults])
        self._urls: Mapping[str, str] | None = None

    def keep_faults(self) -> None:
        """Write down the faults given now, or that there are none, for the commands that go on with these runs."""
        if self._remembered:
            return
        for path in self._kept:
            path.unlink(missing_ok=True)
            if self._given is not None:
                path.write_bytes(self._given.read_bytes())
                path.chmod(FILE_MODE)

    def _start(self) -> Mapping[str, str]:
        from batchctl.cli.simulate import inside

        self.keep_faults()
        return self._stack.enter_context(inside(self._data, self._rules, SIMULATOR_SPEED))

    def __getitem__(self, provider: str) -> str:
        self._urls = self._urls or self._start()
        return self._urls[provider]

    def __iter__(self) -> Iterator[str]:
        return iter(("anthropic", "openai"))

    def __len__(self) -> int:
        return len(list(iter(self)))
