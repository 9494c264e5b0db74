"""Says what is wrong with the state file and the runs, and mends what can be mended without sending anything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from batchctl.core.errors import HeldError, InputError, StorageError
from batchctl.core.model import IN_DOUBT, ItemState, RunState
from batchctl.files.lock import RunLock
from batchctl.files.names import workdir
from batchctl.runs.context import Context
from batchctl.runs.doctor_files import check_file, fetch_again, findings_of, mend
from batchctl.runs.doctor_lists import check_lists
from batchctl.runs.doctor_spool import check_spool
from batchctl.runs.findings import Finding
from batchctl.runs.held import HeldRun, hold
from batchctl.runs.planning import discard_plan, was_accepted
from batchctl.runs.reading import no_run
from batchctl.runs.recalling import older_entries, recall
from batchctl.runs.recovering import recover
from batchctl.runs.settling import settle
from batchctl.state.salvage import damage_of, put_in_place, salvage
from batchctl.state.store import Store

LEFTOVERS = ("*.part", "downloads/*", "bad.jsonl")


async def examine(ctx: Context, name: str | None, *, repair: bool) -> list[Finding]:
    """Examine the state file and one run (or all); with `repair`, mend what can be mended.

    Raises:
        InputError: there is no state file, or no run of that name.
        HeldError: another process holds the named run.
        StateError: the state file is another program's, or newer than this version.
    """
    if not ctx.state_path.is_file():
        lost = ", ".join(_lost(ctx, set()))
        found_too = f", but the requests of runs it knew are beside it: {lost}" if lost else ""
        way = "put a copy of it back, then `batchctl doctor --repair`" if lost else "--state FILE names another"
        raise InputError(f"no state file at {ctx.state_path}{found_too}", hint=way)
    found = _state_file(ctx, repair=repair)
    if any(not finding.mended for finding in found):
        return found  # nothing it says can be trusted
    with Store.open(ctx.state_path, readonly=not repair) as store:
        found += _unplanned(ctx, store, name, repair=repair)
        rows = [row for row in store.runs.all() if row.state is not RunState.PLANNING and name in (None, row.name)]
        if name is not None and not rows and not found:
            raise no_run(store, name)
        for row in rows:
            try:
                with hold(ctx, store, row.name) as run:
                    found += await _run(run, repair=repair)
            except HeldError as error:
                if name is not None:
                    raise
                found.append(Finding(row.name, f"not examined: {error.message}", "wait for it to end"))
    return found


def _state_file(ctx: Context, *, repair: bool) -> list[Finding]:
    path = ctx.state_path
    damage = damage_of(path)
    if not damage:
        return []
    finding = Finding(
        None,
        f"{path} is damaged: {'; '.join(damage[:3])}",
        "it is kept aside, and a checked new file of all that can be read takes its place",
        mendable=True,
    )
    if repair:
        with ExitStack() as stack:
            for lock in _locks(ctx):
                stack.enter_context(RunLock(lock))
            result = salvage(path)
            if result.problems:
                finding.mendable = False
                finding.way_out = (
                    f"what can be read is not whole ({'; '.join(result.problems[:3])}); it is in {result.fresh}. "
                    "Put a copy of the state file back, then `doctor --repair` adds the batches it lacks"
                )
            else:
                aside = put_in_place(path, result.fresh, _stamp(ctx))
                finding.mended = True
                finding.way_out = f"the damaged file is {aside}; all of it could be read"
    return [finding]


def _locks(ctx: Context) -> Iterator[Path]:
    yield from sorted(workdir(ctx.state_path, "x").parent.glob("*/lock"))


def _stamp(ctx: Context) -> str:
    return f"{ctx.now():%Y%m%dT%H%M%SZ}"


def _unplanned(ctx: Context, store: Store, name: str | None, *, repair: bool) -> list[Finding]:
    """Rows in planning and folders without a run: starts that died before anything was sent, or runs that were lost."""
    known = {row.name for row in store.runs.all() if row.state is not RunState.PLANNING}
    folders = workdir(ctx.state_path, "x").parent.glob("*/spool.jsonl")
    planning = {row.name for row in store.runs.planning()}
    lost = _lost(ctx, known | planning)
    dead = planning | {path.parent.name for path in folders} - known - set(lost)
    found = [
        Finding(
            run_name,
            f"{ctx.state_path} does not know it, but its requests are in {workdir(ctx.state_path, run_name)}",
            "put the state file that knows it back; without one, its batches can only be seen at the provider",
        )
        for run_name in lost
        if name in (None, run_name)
    ]
    for run_name in sorted(dead if name is None else dead & {name}):
        finding = Finding(run_name, "its start died before anything was sent", "what it left is removed", mendable=True)
        try:
            with RunLock(workdir(ctx.state_path, run_name) / "lock"):
                if repair:
                    discard_plan(ctx, run_name, lambda: store)
                    finding.mended = True
        except HeldError:
            continue  # it is being planned right now
        found.append(finding)
    return found


def _lost(ctx: Context, known: set[str]) -> list[str]:
    """Runs whose accepted requests are there and whose rows are not."""
    folders = workdir(ctx.state_path, "x").parent.glob("*/spool.jsonl")
    return sorted(path.parent.name for path in folders if path.parent.name not in known and was_accepted(path.parent))


async def _run(run: HeldRun, *, repair: bool) -> list[Finding]:
    found = _books(run, repair=repair)
    found += check_spool(run, repair=repair)
    try:
        if not run.settings.simulate or run.ctx.simulator:
            found += await check_lists(run, repair=repair)
        found += await _intents(run, repair=repair)
        found += await _files(run, repair=repair)  # last: their lines may be of batches that were taken in just now
        found += _leftovers(run, repair=repair)
    finally:
        await run.aclose()
    return found


def _books(run: HeldRun, *, repair: bool) -> list[Finding]:
    """Counters that differ from the rows they count."""
    problems = run.store.runs.verify(run.id)
    left = set(run.store.runs.recount(run.id) if problems and repair else problems)
    run.refresh()
    gone = "rows are lost: put a copy of the state file back, then `doctor --repair` adds the batches it lacks"
    return [
        Finding(
            run.name,
            f"the books do not balance: {text}",
            gone if repair and text in left else "counted anew from the items",
            mendable=not (repair and text in left),
            mended=repair and text not in left,
        )
        for text in [*problems, *sorted(left - set(problems))]
    ]


async def _files(run: HeldRun, *, repair: bool) -> list[Finding]:
    found: list[Finding] = []
    for state in (ItemState.FAILED, ItemState.SUCCEEDED):
        check = check_file(run, state)
        if check.sound:
            continue
        findings = findings_of(run, check)
        if repair:
            gone = await fetch_again(run, mend(run, check, _stamp(run.ctx)))
            for finding in findings:
                finding.mended = True
            if gone:
                shown = ", ".join(repr(row.id) for row in gone[:10])
                text = (
                    f"the answers of {len(gone):,} items are in no file, and the provider no longer has them: {shown}"
                )
                findings.append(Finding(run.name, text, "put the right results.jsonl back, then `doctor --repair`"))
        found += findings
    return found + _tails(run, repair=repair)


def _tails(run: HeldRun, *, repair: bool) -> list[Finding]:
    """Lines written before a crash that are not counted yet, the last one perhaps cut."""
    found = []
    for name, recorded in (("results.jsonl", run.row.results_bytes), ("errors.jsonl", run.row.errors_bytes)):
        path = run.output.local / name
        more = path.stat().st_size - recorded if path.is_file() else 0
        if more > 0:
            text = f"{path}: {more:,} bytes were written before a crash and are not counted yet"
            found.append(Finding(run.name, text, "whole lines are counted, a cut one goes again", mendable=True))
    if found and repair:
        try:
            recover(run)
        except StorageError as error:
            return [*found, Finding(run.name, error.message, "move the file away and put the right one back")]
        for finding in found:
            finding.mended = True
    return found


def _leftovers(run: HeldRun, *, repair: bool) -> list[Finding]:
    found = []
    for folder in {run.work, run.output.local}:
        for path in sorted(path for pattern in LEFTOVERS for path in folder.glob(pattern) if path.is_file()):
            finding = Finding(run.name, f"{path} was left by a process that died", "removed", mendable=True)
            if repair:
                path.unlink(missing_ok=True)
                finding.mended = True
            found.append(finding)
    return found


async def _intents(run: HeldRun, *, repair: bool) -> list[Finding]:
    found = [
        Finding(
            run.name,
            f"batch {batch.number} was sent at {entry.at}, but waits in the state file, which is an older copy",
            "put in doubt: the provider's lists decide before anything is sent again",
            mendable=True,
            mended=repair,
        )
        for entry, batch in older_entries(run)
    ]
    if repair:
        recall(run)
    doubtful = run.store.batches.in_state(run.id, *IN_DOUBT)
    if doubtful and repair:
        await settle(run)
    for batch in doubtful:
        now = run.batch(batch.number)
        finding = Finding(
            run.name,
            f"whether batch {batch.number} was created is not settled",
            f"`batchctl poll {run.name}` asks the provider's lists, `batchctl adopt {run.name}` settles it by hand",
            mended=now.state not in IN_DOUBT,
        )
        found.append(finding)
    return found
