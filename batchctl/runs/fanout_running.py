"""Puts the sync lane together for one run, watches over it, and says how it ended."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress

from batchctl.core.breaker import Breaker
from batchctl.core.durations import format_duration
from batchctl.core.errors import SystemicError
from batchctl.core.events import Event, Level
from batchctl.files.open_files import most_open
from batchctl.providers.base import Completion, SyncProvider
from batchctl.runs.context import InterruptedRunError
from batchctl.runs.driving import needs_of_rest, stop
from batchctl.runs.fanout_cost import Purse
from batchctl.runs.fanout_engine import Engine
from batchctl.runs.fanout_feed import Feed
from batchctl.runs.fanout_judge import Judge
from batchctl.runs.fanout_progress import KIND, LINE_EVERY, Meter, progress, progress_text
from batchctl.runs.fanout_recorder import Recorder
from batchctl.runs.fanout_source import PendingItems, Spool
from batchctl.runs.fanout_stream import StreamedItems
from batchctl.runs.fanout_throttle import Throttle
from batchctl.runs.finishing import finish_if_settled
from batchctl.runs.held import HeldRun
from batchctl.runs.settings import Settings
from batchctl.state.rows import Member

PULSE = 1.0  # seconds
DRAIN = 30.0  # seconds that calls in flight get after a signal
MOST_IN_FLIGHT = 2_000
FILES_KEPT = 64  # descriptors left for everything that is no connection, or half of them where they are few
FEW_CONNECTIONS = 100  # from which on they may hold a run up
FIRST_WAIT = 60.0  # seconds every attempt gets
OUTPUT_RATE = 20.0  # output tokens a second; a slower answer is given up
KEPT_KIB = 4_000  # of the state file in memory: items go by in order, and memory stays as it is at the millionth
UNLIMITED_WAIT = 600.0  # seconds, where nothing limits the output
RARE_COLLECTIONS = (50_000, 50, 1_000)  # objects, young collections, middle ones before each kind of collection


async def drive(run: HeldRun, provider: SyncProvider, feed: Feed | None) -> None:
    """Send everything the run has pending, and what its input still brings; then close the run if all is settled.

    Args:
        feed: an input that is still being read.

    Raises:
        SystemicError: stopped, with its items open.
        InterruptedRunError: a signal asked to stop.
        InputError: the input broke off; what came before it is sent.
    """
    run.store.keep_pages(KEPT_KIB)
    lane = _Lane(run, provider, feed)
    try:
        with _garbage_waits():
            await lane.work()
    finally:
        lane.close()
    _raise_for(run, lane, feed)
    if feed is not None:
        run.store.runs.set_inputs(run.id, feed.inputs(), at=run.ctx.now())
    if not finish_if_settled(run):
        run.store.runs.set_needs(run.id, needs_of_rest(run), at=run.ctx.now())


@contextmanager
def _garbage_waits() -> Iterator[None]:
    """Look for garbage in cycles after many new objects only: every call makes some, and looking took a sixth of it."""
    usual = gc.get_threshold()
    gc.set_threshold(*RARE_COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _raise_for(run: HeldRun, lane: _Lane, feed: Feed | None) -> None:
    """Say why the work stopped early, if it did."""
    if lane.engine.error is not None:
        raise lane.engine.error
    if lane.judge.reason is not None:
        error = SystemicError(
            lane.judge.reason,
            hint=lane.judge.hint or f"see `batchctl errors {run.name}`; the same command goes on with what is open",
        )
        stop(run, error)
        raise error
    if feed is not None and feed.error is not None:
        raise feed.error
    number = run.ctx.stop.signal_number
    row = run.refresh()
    if number is not None and (row.open or (feed is not None and not feed.complete)):
        raise InterruptedRunError(
            number,
            f"interrupted, the state of run {run.name} is saved: {row.open:,} items are open",
            hint=f"the same command goes on, or `batchctl fanout --run {run.name}`",
        )


class _Items:
    """What was pending first, then what streams in."""

    def __init__(self, pending: PendingItems, streamed: StreamedItems | None) -> None:
        self._pending = pending
        self._streamed = streamed

    @property
    def ended(self) -> bool:
        return self._pending.ended and (self._streamed is None or self._streamed.ended)

    def take(self) -> Member | None:
        member = self._pending.take()
        if member is None and self._streamed is not None:
            return self._streamed.take()
        return member


class _Lane:
    """The parts of the sync lane at work on one run."""

    def __init__(self, run: HeldRun, provider: SyncProvider, feed: Feed | None) -> None:
        self._run = run
        self._feed = feed
        settings = run.settings
        self.meter = Meter()
        self.throttle = Throttle(
            {name: limit for name, limit in (("requests", settings.rpm), ("tokens", settings.tpm)) if limit},
            settings.share,
            charge=run.form.charge,
            max_tokens=settings.max_tokens,
            most=min(settings.concurrency or MOST_IN_FLIGHT, _connections(run)),
            asked=settings.concurrency is not None,
            cpu=run.ctx.cpu,
            random=run.ctx.random,
        )
        self._recorder = Recorder(run, self._broke)
        self.judge = Judge(
            run,
            throttle=self.throttle,
            recorder=self._recorder,
            breaker=Breaker(settings.max_failure_rate),
            meter=self.meter,
            max_attempts=settings.max_attempts,
        )
        self._open = run.row.open
        pending = PendingItems(run, last=run.refresh().planned)
        self.streamed = None if feed is None else StreamedItems(run, feed, self._recorder.commit)
        self._spool = Spool(run)
        cap = settings.max_cost
        purse = None if cap is None else Purse(run, cap, lambda: self._recorder.cost_usd)
        timeout = timeout_of(settings)
        headers = run.headers or None

        def send(member: Member) -> Awaitable[Completion]:
            endpoint, body = self._spool.request(member)
            return provider.complete(member.id, endpoint, body, timeout=timeout, headers=headers)

        self.engine = Engine(
            _Items(pending, self.streamed),
            send,
            throttle=self.throttle,
            judge=self.judge,
            meter=self.meter,
            purse=purse,
        )

    def _broke(self, error: Exception) -> None:
        self.engine.fail(error)

    async def work(self) -> None:
        """Send everything; every outcome is counted when this returns or raises."""
        if self._feed is not None:
            loop = asyncio.get_running_loop()
            self._feed.start(lambda: _call_soon(loop, self.engine.wake))
        watch = asyncio.create_task(self._watch())
        try:
            await self.engine.work()
        finally:
            watch.cancel()
            self._recorder.commit()
            self._say(Level.INFO)
            if (advice := self.throttle.advice()) is not None:
                self._run.emit(
                    "fanout.refused",
                    f"{self.meter.refused:,} of {self.meter.calls:,} calls were refused for lack of room: {advice}",
                    level=Level.WARNING,
                    data={"refused": self.meter.refused, "calls": self.meter.calls, "limits": self.throttle.limits},
                )

    def close(self) -> None:
        """Close the files."""
        self._spool.close()
        if self.streamed is not None:
            self.streamed.close()

    async def _watch(self) -> None:
        """Say where it stands, and obey a signal: first drain, then give up what is still in flight."""
        stop_wish = self._run.ctx.stop
        pulse = 0
        while stop_wish.signal_number is None:
            await stop_wish.wait(PULSE)
            self.meter.sample(asyncio.get_running_loop().time())
            pulse += 1
            self._say(Level.DEBUG if pulse % LINE_EVERY else Level.INFO)
        self.engine.close()
        if self._feed is not None:
            self._feed.stop()
        if self.engine.in_flight:
            self._run.emit(
                "fanout.draining",
                f"waiting {format_duration(DRAIN)} at most for {self.engine.in_flight:,} calls in flight",
                data={"in_flight": self.engine.in_flight},
            )
        await asyncio.sleep(DRAIN)
        self.engine.abort()

    def _say(self, level: Level) -> None:
        """Tell where the work stands; not kept in the store, where it would be noise."""
        run = self._run
        unended = self.streamed is not None and not self.streamed.ended
        data = progress(
            self.meter,
            in_flight=self.engine.in_flight,
            oldest=self.engine.oldest(),
            window=self.throttle.size,
            cost_usd=self._recorder.cost_usd,
            open_items=None if unended else self._open - self.meter.completed - self.meter.failed,
        )
        run.ctx.emit(Event(KIND, progress_text(data), run.name, level=level, data=data))


def _connections(run: HeldRun) -> int:
    """How many connections may be open at once; where they are few, that and the way out is said (field report 155)."""
    files = most_open()
    most = max(files - min(FILES_KEPT, files // 2), 1)
    if most < FEW_CONNECTIONS:
        text = f"this process may open {files} files, so {most} calls at most go at once: raise it with `ulimit -n`"
        run.emit("fanout.descriptors", text, level=Level.WARNING)
    return most


def timeout_of(settings: Settings) -> float:
    """Seconds one attempt may take in all, scaled with the longest answer (field reports 159, 161)."""
    if settings.timeout is not None:
        return settings.timeout
    if settings.max_tokens is None:
        return UNLIMITED_WAIT
    return FIRST_WAIT + settings.max_tokens / OUTPUT_RATE


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """From another thread; a loop that is closed needs no news any more."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call)
