"""Makes a run: input read, requests spooled, batches cut, rows stored; until all of it is accepted nothing is left."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

from batchctl.core.errors import InputError
from batchctl.core.model import Outcome, RunState
from batchctl.files.names import check_run_name, workdir
from batchctl.files.outputs import OutputFolder
from batchctl.files.readers import Source, open_source
from batchctl.files.results import error_line
from batchctl.files.spool import SpoolWriter
from batchctl.providers import registry
from batchctl.providers.addresses import check_address
from batchctl.runs.budget import refuse_unpriced
from batchctl.runs.building import make_builder
from batchctl.runs.context import Context, utc_now
from batchctl.runs.cutting import Cut, Cutter
from batchctl.runs.limits import id_room, limits_for, wire_ids
from batchctl.runs.problems import LINES_NAMED, Problem, bad_input
from batchctl.runs.settings import Settings
from batchctl.state.rows import NewItem
from batchctl.state.runs import DuplicateIdError
from batchctl.state.store import Store

UNPACKED = 2**62  # requests and bytes of what is no batch


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What a new run is made from.

    Args:
        items: input paths, `-` for standard input.
        format: the input's format where the name does not tell.
        out: output folder or URI.
    """

    name: str
    items: tuple[str, ...]
    settings: Settings
    out: str
    format: str | None = None

    def sources(self) -> list[Source]:
        """The inputs, opened."""
        return [open_source(path, format=self.format) for path in self.items]


def problem_line(problem: Problem) -> bytes:
    """The line in errors.jsonl of a record that cannot be sent."""
    return error_line(
        id=problem.id,
        outcome=Outcome.ERRORED,
        error_type=problem.type,
        error_code=None,
        error_message=str(problem),
        attempts=0,
        batch_id=None,
        round=0,
        text=None,
    )


class _NullSink:
    """Counts only: what `plan` needs."""

    def __init__(self) -> None:
        self._size = 0

    def line(self, request: bytes) -> int:
        offset = self._size
        self._size += len(request) + 1
        return offset

    def lines(self, requests: list[bytes]) -> int:
        offset = self._size
        self._size += sum(map(len, requests))
        return offset

    def bad(self, problem: Problem) -> tuple[int, int]:  # noqa: ARG002  # only counted
        return 0, 0

    def rows(self, items: list[NewItem]) -> None:
        """Rows are not kept."""


class _RunSink:
    """Spools lines at once; rows wait until the first chunk is known to be good, and only then is anything stored."""

    def __init__(self, work: Path, begin: Callable[[], tuple[Store, int]], *, packed: bool) -> None:
        self._packed = packed
        self.spool = SpoolWriter(work / "spool.jsonl")
        self.bad_lines = SpoolWriter(work / "bad.jsonl")
        self._begin = begin
        self.stored: tuple[Store, int] | None = None  # where rows go, once there is a first one
        self.line = self.spool.append
        self.lines = self.spool.append_lines

    def bad(self, problem: Problem) -> tuple[int, int]:
        line = problem_line(problem)
        return self.bad_lines.append(line), len(line)

    def rows(self, items: list[NewItem]) -> None:
        if self.stored is None:
            self.stored = self._begin()
        store, run_id = self.stored
        if not self._packed:
            items = [(*item[:7], None, *item[8:]) for item in items]
        store.items.add(run_id, items)

    def sync(self) -> None:
        self.spool.sync()
        self.bad_lines.sync()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.spool.close()
        self.bad_lines.close()


def survey(request: PlanRequest) -> Cut:
    """Read the whole input and say what would be sent; sends, stores and creates nothing."""
    check_run_name(request.name)
    check_address(request.settings.provider, request.settings.base_url)
    refuse_unpriced(request.settings, utc_now())
    form = registry.request_format(request.settings.provider)
    limits = limits_for(form, request.settings)
    cutter = Cutter(
        build=make_builder(request.settings, form),
        limits=limits,
        wire_ids=partial(wire_ids, request.settings, "0" * 8, limits),
        head=form.head,
        sink=_NullSink(),
        skip_bad=True,
        id_room=id_room(request.settings),
    )
    return cutter.read(request.sources())


def make_run(ctx: Context, request: PlanRequest, open_store: Callable[[], Store], *, packed: bool = True) -> Cut:
    """Plan a new run under its name; the caller holds the name's lock.

    Without `packed` its items are in no batch, and no limit of a batch but that of one request holds.

    The spool is written as the input is read; the state file is not touched before the first chunk of records was
    good, and a run becomes visible only when every record was.

    Raises:
        InputError: bad input; nothing is left behind.
    """
    settings = request.settings
    form = registry.request_format(settings.provider)
    limits = limits_for(form, settings)
    if not packed:
        limits = replace(limits, requests=UNPACKED, bytes=UNPACKED)
    build = make_builder(settings, form)
    sources = request.sources()
    work = workdir(ctx.state_path, request.name)
    output = OutputFolder(request.out, work)
    output.refuse_foreign()
    token = f"{ctx.random.getrandbits(32):08x}"

    def begin() -> tuple[Store, int]:
        store = open_store()
        return store, create_row(ctx, request, store, token)

    sink = _RunSink(work, begin, packed=packed)
    cutter = Cutter(
        build=build,
        limits=limits,
        wire_ids=partial(wire_ids, settings, token, limits),
        head=form.head,
        sink=sink,
        skip_bad=settings.skip_bad,
        id_room=id_room(settings),
    )
    try:
        with sink:
            with ctx.stop.at_once("interrupted while reading the input: nothing was sent and nothing is kept"):
                cut = cutter.read(sources)
            if cut.bad and not settings.skip_bad:
                raise bad_input(cut.problems, f"{cut.bad:,}")
            sink.sync()
        if not packed:
            cut.batches = []
        _accept(ctx, request, cut, open_store(), output, work)
    except BaseException:
        discard_plan(ctx, request.name, open_store if sink.stored else None)
        raise
    return cut


def create_row(ctx: Context, request: PlanRequest, store: Store, token: str) -> int:
    """Add the run in state planning; returns its id."""
    settings = request.settings
    return store.runs.create(
        name=request.name,
        token=token,
        provider=settings.provider,
        endpoint=settings.endpoint,
        model=settings.model or "",
        settings=settings.as_dict(),
        fingerprint=settings.fingerprint(),
        out=request.out,
        at=ctx.now(),
    )


def _accept(ctx: Context, request: PlanRequest, cut: Cut, store: Store, output: OutputFolder, work: Path) -> None:
    """Make a fully read plan a run: error lines of bad records first, then the one commit that makes it visible."""
    row = store.runs.get(request.name)
    assert row is not None
    with store.transaction():
        for batch in cut.batches:
            store.batches.add_waiting(
                row.id,
                batch.number,
                round=0,
                requests=batch.requests,
                size=batch.size,
                tokens=batch.tokens,
                first_seq=batch.first_seq,
                last_seq=batch.last_seq,
            )
    output.adopt_file(work / "bad.jsonl", "errors.jsonl")
    try:
        store.runs.finish_plan(
            row.id,
            planned=cut.items + cut.bad + cut.oversize,
            inputs=cut.inputs,
            errors_bytes=(output.local / "errors.jsonl").stat().st_size,
            at=ctx.now(),
        )
    except DuplicateIdError as error:
        raise _by_file(error, request.items) from None


def _by_file(error: DuplicateIdError, paths: tuple[str, ...]) -> InputError:
    """The refusal of ids that stand twice, with the file and line of each place."""
    ids = [
        f"  id {item_id!r}: {' and '.join(f'{paths[source]} line {line}' for source, line in places[:LINES_NAMED])}"
        for item_id, places in error.duplicates
    ]
    return InputError("ids that stand more than once; nothing was sent:\n" + "\n".join(ids), hint=error.hint)


def was_accepted(work: Path) -> bool:
    """Whether a run's folder holds requests that may have been sent: accepting a plan moves its bad.jsonl away."""
    spool = work / "spool.jsonl"
    return spool.is_file() and spool.stat().st_size > 0 and not (work / "bad.jsonl").exists()


def discard_plan(ctx: Context, name: str, open_store: Callable[[], Store] | None) -> None:
    """Remove what a plan that was not accepted left: spool, rows, error lines."""
    work = workdir(ctx.state_path, name)
    (work / "spool.jsonl").unlink(missing_ok=True)  # first: without its row it would look like a lost run's
    if open_store is not None:
        store = open_store()
        row = store.runs.get(name)
        if row is not None and row.state == RunState.PLANNING:
            (OutputFolder(row.out, workdir(ctx.state_path, name)).local / "errors.jsonl").unlink(missing_ok=True)
            store.runs.purge(row.id)
    (work / "bad.jsonl").unlink(missing_ok=True)
    shutil.rmtree(work / "downloads", ignore_errors=True)
