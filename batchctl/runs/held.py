"""A run that this process holds: its lock, row, settings, files and provider, opened together and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from batchctl.core.errors import InputError
from batchctl.core.events import Event, Level
from batchctl.core.model import ItemError, RunState
from batchctl.core.prices import Rates
from batchctl.core.reply import ReplyCheck
from batchctl.files.linelog import LineLog
from batchctl.files.lock import RunLock
from batchctl.files.names import workdir
from batchctl.files.outputs import OutputFolder
from batchctl.files.sentlog import SentLog
from batchctl.providers import registry
from batchctl.providers.base import Account, BatchLimits, BatchProvider, RequestFormat, SyncProvider
from batchctl.runs.context import Context
from batchctl.runs.limits import limits_for, wire_id
from batchctl.runs.reading import run_named
from batchctl.runs.settings import Settings
from batchctl.state.rows import BatchRow, RunRow
from batchctl.state.store import Store

SIMULATED_KEY = "simulated"  # the simulator takes any key
SIMULATED = Account("the simulator", SIMULATED_KEY)  # wherever it listens this time


class HeldRun:
    """One run under this process's lock.

    Args:
        row: the run as it was when it was opened; `refresh` reads it again.
    """

    def __init__(self, ctx: Context, store: Store, row: RunRow) -> None:
        self.ctx = ctx
        self.store = store
        self.row = row
        self.id = row.id
        self.name = row.name
        self.settings = Settings.from_dict(row.settings)
        self.work = workdir(ctx.state_path, row.name)
        self.output = OutputFolder(row.out, self.work)
        self.form: RequestFormat = registry.request_format(row.provider)
        self.systemic: ItemError | None = None
        self.importing = asyncio.Lock()  # downloads go side by side; results are read in one batch after the other
        self.withheld: dict[int, str] = {}  # ended batches whose answers cannot be had for now, and why
        self.unlisted: str | None = None  # why nothing is sent: the provider's list cannot be read
        self.elsewhere: dict[int, str] = {}  # batches that cannot be seen with the address and key in use, and why
        self.deletion_pause = 0.0  # seconds to wait after a deletion that failed
        self._account: Account | None = None
        self._rates: dict[tuple[str | None, bool], Rates | None] = {}

    @cached_property
    def results(self) -> LineLog:
        """results.jsonl; opened, and what a crash left at its end repaired, on first use."""
        return LineLog.open(self.output.local / "results.jsonl", self.row.results_bytes)

    @cached_property
    def errors(self) -> LineLog:
        """errors.jsonl, likewise."""
        return LineLog.open(self.output.local / "errors.jsonl", self.row.errors_bytes)

    @cached_property
    def provider(self) -> BatchProvider:
        """The batch lane's adapter; made on first use, since its SDK costs a second to import."""
        return registry.batch_provider(self.row.provider, **self._connection())

    async def account(self) -> Account:
        """The address and key in use, as they may be written down."""
        if self._account is None:
            self._account = SIMULATED if self.settings.simulate else await self.provider.account(self.row.token)
        return self._account

    def sync_provider(self) -> SyncProvider:
        """The sync lane's adapter; the caller closes it."""
        return registry.sync_provider(self.row.provider, **self._connection())

    def _connection(self) -> dict[str, str | None]:
        if self.settings.simulate:
            return {"base_url": self.ctx.simulator[self.row.provider], "api_key": SIMULATED_KEY}
        return {"base_url": self.settings.base_url}

    @property
    def headers(self) -> dict[str, str]:
        """Headers of every call: beta names stand there, never inside bodies (field report 41)."""
        return {f"{self.row.provider}-beta": ",".join(self.settings.betas)} if self.settings.betas else {}

    @cached_property
    def check(self) -> ReplyCheck | None:
        """The reply check, where the run has a schema."""
        return None if self.settings.schema is None else ReplyCheck(dict(self.settings.schema))

    @cached_property
    def limits(self) -> BatchLimits:
        """The provider's limits, lowered by option."""
        return limits_for(self.form, self.settings)

    @property
    def ids_tell(self) -> bool:
        """Whether a batch in the provider's list can be told from every other run's: by its key, or by tagged ids."""
        return self.form.keeps_keys or self.settings.tag_ids

    @cached_property
    def sent(self) -> SentLog:
        """What was sent, as it is written down beside the state file."""
        return SentLog(self.work / "sent.jsonl")

    @property
    def spool(self) -> Path:
        """The file of request lines."""
        return self.work / "spool.jsonl"

    def rates(self, model: str | None, *, batch: bool) -> Rates | None:
        """Prices of a model, None where they are not known; looked up once."""
        key = (model, batch)
        if key not in self._rates:
            self._rates[key] = (
                None if model is None else Rates.load(self.row.provider, model, batch=batch, at=self.ctx.now())
            )
        return self._rates[key]

    def batch(self, number: int) -> BatchRow:
        """A batch of this run as it is now."""
        batch = self.store.batches.get(self.id, number)
        assert batch is not None
        return batch

    def wire_id(self, item_id: str, seq: int, batch: int) -> str:
        """The custom id of an item in a batch."""
        return wire_id(self.settings, self.row.token, self.limits, item_id, seq, batch)

    def refresh(self) -> RunRow:
        """Read the run's row again."""
        row = self.store.runs.by_id(self.id)
        assert row is not None
        self.row = row
        return row

    def emit(
        self,
        kind: str,
        text: str,
        *,
        batch: int | None = None,
        level: Level = Level.INFO,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        """Say what happened, to people and to the events table."""
        details = dict(data or {})
        self.ctx.emit(Event(kind, text, self.name, batch, level, details))
        self.store.events.add(self.id, batch, self.ctx.now(), int(level), kind, text, details)

    def sync_logs(self) -> None:
        """Put every appended result line on the disk."""
        self.results.sync()
        self.errors.sync()

    def close(self) -> None:
        """Close the result files, if they were opened."""
        for name in ("results", "errors"):
            log = self.__dict__.pop(name, None)
            if log is not None:
                log.close()

    async def aclose(self) -> None:
        """Close the provider's connections, if any were opened."""
        provider = self.__dict__.pop("provider", None)
        if provider is not None:
            await provider.aclose()


@contextmanager
def hold_locked(ctx: Context, store: Store, name: str) -> Iterator[HeldRun]:
    """Open a run whose lock the caller has.

    Raises:
        StorageError: its result files are damaged in a way only `doctor` may mend.
    """
    run = HeldRun(ctx, store, run_named(store, name))
    try:
        yield run
    finally:
        run.close()


@contextmanager
def hold(ctx: Context, store: Store, name: str) -> Iterator[HeldRun]:
    """Take a run's lock and open it.

    Raises:
        HeldError: another process holds it.
        InputError: there is no such run, or its planning died.
    """
    run_named(store, name)  # before its folder is made
    with RunLock(workdir(ctx.state_path, name) / "lock"):
        _refuse_half_planned(store, name)
        with hold_locked(ctx, store, name) as run:
            yield run


def _refuse_half_planned(store: Store, name: str) -> None:
    row = store.runs.get(name)
    if row is not None and row.state is RunState.PLANNING:
        raise InputError(
            f"run {name} was never planned to its end, so nothing of it was sent",
            hint="give the command that started it again; it starts anew",
        )
