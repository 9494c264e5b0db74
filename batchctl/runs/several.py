"""Several runs worked on by one command: all locks before any work, and no run's trouble stops another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Self

from batchctl.core.errors import BatchctlError, HeldError, UnexpectedError
from batchctl.core.events import Event, Level
from batchctl.files.durable import named
from batchctl.runs.context import Context, InterruptedRunError
from batchctl.runs.driving import stop_if_asked
from batchctl.runs.held import HeldRun, hold
from batchctl.state.store import Store


class Several:
    """The named runs, or every open one, held together.

    Raises:
        HeldError: (on entering) a named run, or every open one, is held by another process.
        BatchctlError: (on leaving) the worst that befell one of them.
    """

    def __init__(self, ctx: Context, store: Store, names: Sequence[str]) -> None:
        self._ctx = ctx
        self._store = store
        self._names = names
        self._stack = ExitStack()
        self._wanted: list[str] = []
        self._errors: list[BatchctlError] = []
        self._opened: list[HeldRun] = []
        self.runs: list[HeldRun] = []  # those nothing has befallen yet

    def __enter__(self) -> Self:
        try:
            self._hold()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _hold(self) -> None:
        self._wanted = list(dict.fromkeys(self._names)) or [row.name for row in self._store.runs.open()]
        refused: HeldError | None = None
        for name in self._wanted:
            try:
                self._opened.append(self._stack.enter_context(hold(self._ctx, self._store, name)))
            except HeldError as error:
                if self._names:
                    raise
                refused = error
                self._ctx.emit(Event("run.held", f"run {name} is skipped: {error.message}", name))
            except BatchctlError as error:
                self._keep(name, error)
        self.runs = list(self._opened)
        if refused is not None and not self.runs and not self._errors:
            raise refused

    async def each(self, work: Callable[[HeldRun], Awaitable[None]]) -> None:
        """Do something with every run that is in order; one that fails is left out from then on."""
        for run in list(self.runs):
            try:
                await work(run)
            except InterruptedRunError:
                stop_if_asked(*self._opened)
                raise
            except Exception as error:  # noqa: BLE001  # whatever befalls one run, the others go on
                self.failed(run, error)

    async def aclose(self) -> None:
        """Close every connection that was opened."""
        for run in self._opened:
            await run.aclose()

    def failed(self, run: HeldRun, error: Exception) -> None:
        """Leave a run out and keep its error for the end; one nobody expected ends a command for this run alone."""
        if not isinstance(error, BatchctlError):
            if len(self._wanted) == 1:
                raise error
            error = _named(error)
        self.runs.remove(run)
        self._keep(run.name, error)

    def _keep(self, name: str, error: BatchctlError) -> None:
        if len(self._wanted) > 1:  # one run's error ends the command, which says it
            where = f"run {name}"
            error.message = error.message if where in error.message else f"{where}: {error.message}"
            self._ctx.emit(Event("run.failed", error.message, name, level=Level.ERROR))
        self._errors.append(error)

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        self._stack.close()
        if kind is None and self._errors:
            raise max(self._errors, key=lambda error: error.exit_code)


def _named(error: Exception) -> BatchctlError:
    problem = named(error) if isinstance(error, OSError) else None
    return problem or UnexpectedError(
        f"unexpected {type(error).__name__}: {error}",
        hint="the same command for this run alone shows where",
    )
