"""Starts a run or goes on with the one of the same name; something different under a taken name is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from batchctl.core.errors import InputError
from batchctl.core.events import Level
from batchctl.core.model import RunState
from batchctl.core.words import counted
from batchctl.files.lock import RunLock
from batchctl.files.names import check_run_name, workdir
from batchctl.files.readers import digest
from batchctl.providers.addresses import check_address
from batchctl.providers.keys import find_key
from batchctl.runs.budget import refuse_unpriced
from batchctl.runs.building import NO_FIELD, uses_no_field
from batchctl.runs.context import Context
from batchctl.runs.cutting import Cut
from batchctl.runs.held import HeldRun, hold_locked
from batchctl.runs.planning import PlanRequest, discard_plan, make_run, was_accepted
from batchctl.runs.recovering import recover
from batchctl.runs.settings import Settings
from batchctl.state.rows import RunRow
from batchctl.state.store import Store

Plan = Callable[[Context, PlanRequest, Callable[[], Store]], Cut | None]


@contextmanager
def start(ctx: Context, request: PlanRequest, plan: Plan = make_run, *, streams: bool = False) -> Iterator[HeldRun]:
    """Hold the run of this request, planned now or found as it was left.

    Args:
        plan: makes a new run; what it tells of the plan is said.
        streams: an input that was not read to its end may go on.

    Raises:
        HeldError: another process works on it.
        InputError: bad input, or the name is taken by something different.
    """
    check_run_name(request.name)
    check_address(request.settings.provider, request.settings.base_url)
    if not request.settings.simulate:
        find_key(request.settings.provider)
    refuse_unpriced(request.settings, ctx.now())
    work = workdir(ctx.state_path, request.name)
    new_folders = _missing_parents(work)
    opened: list[Store] = []

    def open_store() -> Store:
        if not opened:
            opened.append(Store.open(ctx.state_path))
        return opened[0]

    try:
        with RunLock(work / "lock"):
            try:
                row = _existing(ctx, request.name, open_store)
                if row is None:
                    _refuse_lost_run(ctx, request.name, work)
                    _refuse_shared_folder(ctx, request, open_store)
                    cut = plan(ctx, request, open_store)
                else:
                    cut = None
                    _refuse_difference(row, request, streams=streams)
            except BaseException:
                _remove_empty(work, new_folders)
                raise
            with hold_locked(ctx, open_store(), request.name) as run:
                if cut is not None:
                    _announce(run, cut)
                recover(run)
                _reopen(run, request.settings)
                yield run
    finally:
        for store in opened:
            store.close()


def _existing(ctx: Context, name: str, open_store: Callable[[], Store]) -> RunRow | None:
    """The run of this name, after a plan that died halfway was cleared away (nothing of it was ever sent)."""
    if not ctx.state_path.exists():
        return None
    row = open_store().runs.get(name)
    if row is not None and row.state is RunState.PLANNING:
        discard_plan(ctx, name, open_store)
        return None
    return row


def _refuse_lost_run(ctx: Context, name: str, work: Path) -> None:
    """Requests without their run: the state file was lost, and what it had sent may still be answered and billed."""
    if was_accepted(work):
        raise InputError(
            f"{work} holds the requests of a run {name!r} that {ctx.state_path} does not know: the state file was lost "
            "or replaced, and its batches may still be answered; nothing was sent",
            hint="put a copy of the state file back, then `batchctl doctor --repair` adds the batches it lacks; "
            "to pay for everything once more, give another --name and --out, or remove that folder",
        )


def _refuse_shared_folder(ctx: Context, request: PlanRequest, open_store: Callable[[], Store]) -> None:
    """Two runs never write into one folder: each would take the other's answers for its own."""
    if not ctx.state_path.exists():
        return
    for other in open_store().runs.all():
        if other.out == request.out:
            raise InputError(
                f"run {other.name!r} writes its files into {request.out}", hint="give this run another --out"
            )


def _announce(run: HeldRun, cut: Cut) -> None:
    """Say what was planned, and what about it is seldom meant."""
    batches = f" in {counted(len(cut.batches), 'batch')}" if cut.batches else ""
    items = f"{counted(cut.items, 'item')}{batches}, {cut.size:,} bytes, about {cut.tokens:,} input tokens"
    data: dict[str, Any] = {"items": cut.items, "batches": len(cut.batches), "bytes": cut.size, "tokens": cut.tokens}
    run.emit("run.planned", f"run {run.name}: {items}", data=data)
    if run.settings.model and run.rates(run.settings.model, batch=True) is None:
        text = f"no price is known for {run.settings.model}, so costs are not counted; is its name right?"
        run.emit("run.unpriced", text, level=Level.WARNING)
    if uses_no_field(run.settings):
        run.emit("run.same_requests", NO_FIELD, level=Level.WARNING)
    if twin := _twin(run):
        text = f"run {twin} asks the same of the same input already: what both send is paid twice"
        run.emit("run.repeated", text, level=Level.WARNING)
    for problem in cut.problems:
        run.emit("item.refused", f"not sent: {problem}", level=Level.WARNING)
    if cut.repaired:
        text = f"{counted(cut.repaired, 'item')} held broken Unicode (lone surrogates), replaced by U+FFFD"
        run.emit("item.repaired", text, level=Level.WARNING)


def _twin(run: HeldRun) -> str | None:
    """Another run with these settings and this input."""
    digests = [source.get("sha256") for source in run.row.inputs]
    same = (
        other.name
        for other in run.store.runs.all()
        if other.id != run.id
        and (other.open or other.succeeded)
        and other.fingerprint == run.row.fingerprint
        and [source.get("sha256") for source in other.inputs] == digests
    )
    return next(same, None) if digests else None


def _refuse_difference(row: RunRow, request: PlanRequest, *, streams: bool) -> None:
    """Go on only with what the run was made from (field reports 174, 175)."""
    found = [
        f"  {name}: was {old}, is {new}"
        for name, old, new in Settings.from_dict(row.settings).changes(request.settings)
    ]
    if row.out != request.out:
        found.append(f"  out: was {row.out}, is {request.out}")
    if row.inputs or not streams:
        found += _input_changes(row, request)
    if found:
        raise InputError(
            f"run {row.name!r} exists and was made from something different; nothing was sent:\n" + "\n".join(found),
            hint="give another --name, or --new for a new run; or repeat the command as it was to go on",
        )


def _input_changes(row: RunRow, request: PlanRequest) -> list[str]:
    if len(row.inputs) != len(request.items):
        return [f"  input: was {len(row.inputs)} files, is {len(request.items)}"]
    changes = []
    for old, path in zip(row.inputs, request.items, strict=True):
        if path != "-" and _untouched(old, Path(path)):
            continue
        try:
            size, sha256 = digest(path)
        except InputError as error:
            raise InputError(
                f"{error.message} (run {row.name!r} was made from it)",
                hint=f"the run goes on without it: `batchctl poll --wait --resubmit {row.name}`, or "
                f"`batchctl fanout --run {row.name}` for one that was started so",
            ) from None
        if sha256 != old["sha256"]:
            changes.append(
                f"  input {path}: was {old['bytes']:,} bytes (sha256 {old['sha256'][:12]}), "
                f"is {size:,} bytes (sha256 {sha256[:12]})"
            )
    return changes


def _untouched(old: dict[str, Any], path: Path) -> bool:
    """Size and time of change tell without reading; anything else is settled by the digest."""
    try:
        stat = path.stat()
    except OSError:
        return False
    return bool(old["path"] == str(path) and old["bytes"] == stat.st_size and old["modified_ns"] == stat.st_mtime_ns)


def _reopen(run: HeldRun, settings: Settings) -> None:
    """Take over settings that may change, and go on after a stop."""
    if settings.as_dict() != run.settings.as_dict():
        run.store.runs.set_settings(run.id, settings.as_dict(), at=run.ctx.now())
        run.settings = settings
    if run.row.state is RunState.STOPPED:
        run.store.runs.move(run.id, RunState.OPEN, needs=None, at=run.ctx.now())
        run.refresh()


def _missing_parents(path: Path) -> list[Path]:
    """Folders that would have to be made for `path`, deepest first."""
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def _remove_empty(work: Path, folders: list[Path]) -> None:
    """Take back the folders a refused plan made, as far as they are empty but for its lock."""
    if [path.name for path in work.iterdir()] == ["lock"]:
        (work / "lock").unlink()
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
