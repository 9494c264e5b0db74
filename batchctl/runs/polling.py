"""Looks at open batches and moves each one on: progress, deadline, end, refusal. One bad answer never ends a wait."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

from batchctl.core.errors import Fault, ProviderError
from batchctl.core.events import Level
from batchctl.core.model import FOLLOWED, RUNNING, BatchState, CancelCause
from batchctl.core.retry import LONGEST_PAUSE, is_due, poll_delay
from batchctl.providers.base import BatchCheck, Phase
from batchctl.providers.times import KEPT
from batchctl.runs.accounts import look_elsewhere
from batchctl.runs.collecting import collect, disown
from batchctl.runs.held import HeldRun
from batchctl.runs.rejecting import rejected
from batchctl.state.rows import BatchRow

SIDE_BY_SIDE = 16  # batches looked at (and collected) at once
EXPIRY_GRACE = 600.0  # seconds a provider gets past its own expiry to end the batch itself
GONE_LOOKS = 3  # looks in a row that do not find an ended batch's results before they count as gone
LOST_AFTER = 10  # looks in a row that fail, or at a cancel that does not end, before a person is asked
STALL = timedelta(hours=6)  # without any change before a batch is said to stall, and between two times it is said
LOOKS_A_STEP = 10  # looks at the plain interval before the next, longer one


async def look_at_batches(run: HeldRun, *, all_of_them: bool) -> None:
    """Look at the batches that are due (or at all), and collect what ended, side by side.

    Raises:
        ProviderError: a systemic fault; the other batches' looks are finished first.
    """
    now = run.ctx.now()
    due = [
        batch
        for batch in run.store.batches.in_state(run.id, *FOLLOWED)
        if all_of_them or is_due(batch.next_check_at, now, run.settings.interval)
    ]
    gate = asyncio.Semaphore(SIDE_BY_SIDE)

    async def look(batch: BatchRow) -> None:
        async with gate:
            if not run.ctx.stop.signal_number:
                await _look(run, batch)

    answers = await asyncio.gather(*(look(batch) for batch in due), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer


async def _look(run: HeldRun, batch: BatchRow) -> None:
    assert batch.batch_id is not None
    try:
        check = await run.provider.check(batch.batch_id)
        await _move_on(run, batch, check)
    except ProviderError as error:
        if error.fault is Fault.SYSTEMIC:
            raise
        elsewhere = await look_elsewhere(run, batch) if error.fault is Fault.NOT_FOUND else None
        _failed_look(run, batch, error, elsewhere)
        if error.fault is Fault.NOT_FOUND:
            _not_found(run, run.batch(batch.number))


def _not_found(run: HeldRun, batch: BatchRow) -> None:
    """A batch not found again and again is in another account, or its results are gone; once or twice says nothing."""
    if batch.check_failures < GONE_LOOKS:
        run.elsewhere.pop(batch.number, None)
    elif batch.state is BatchState.ABANDONED:
        due = batch.expires_at or (batch.submitted_at or run.ctx.now()) + timedelta(days=1)
        if batch.check_failures >= LOST_AFTER and batch.number not in run.elsewhere and run.ctx.now() >= due:
            _let_go(run, batch, "the provider does not know it, or its answers, any more")
    elif batch.number not in run.elsewhere:
        _may_be_gone(run, batch)


def _let_go(run: HeldRun, batch: BatchRow, why: str) -> None:
    """Look no more at a given-up batch that cannot answer; until then its late answers were still taken."""
    run.store.batches.collected(run.id, batch.number, at=run.ctx.now())
    run.emit(
        "batch.let_go",
        f"batch {batch.number} ({batch.batch_id}), which was given up, is not looked at any more: {why}",
        batch=batch.number,
        data={"batch_id": batch.batch_id},
    )


def _may_be_gone(run: HeldRun, batch: BatchRow) -> None:
    """An ended batch whose results are not found again and again: the provider has thrown them away."""
    if batch.state is not BatchState.ENDED or batch.number in run.withheld:
        return
    run.withheld[batch.number] = "the provider has its results no more"
    run.emit(
        "batch.results_gone",
        f"batch {batch.number} ({batch.batch_id}) has ended, but the provider no longer has its results",
        batch=batch.number,
        level=Level.ERROR,
    )


def needs_of_withheld(run: HeldRun) -> str | None:
    """The sentence that tells a person what can be done about a batch that does not end or whose results are gone."""
    for batch in run.store.batches.in_state(run.id, *RUNNING):
        if batch.check_failures >= LOST_AFTER or (batch.state is BatchState.CANCELING and batch.looks >= LOST_AFTER):
            what = "does not end its cancel" if batch.state is BatchState.CANCELING else "cannot be looked at"
            return (
                f"batch {batch.number} ({batch.batch_id}) {what}: wait, or `batchctl resubmit {run.name} "
                f"--abandon {batch.number}` sends its items again, which may be paid again"
            )
    for number, why in sorted(run.withheld.items()):
        return (
            f"batch {number} has ended, but {why}; each poll asks again, and `batchctl resubmit {run.name} "
            f"--abandon {number}` sends its open items again, which is paid again"
        )
    return None


def _failed_look(run: HeldRun, batch: BatchRow, error: ProviderError, elsewhere: str | None) -> None:
    """An outage, or an id the provider does not know for now: wait and say so; never a reason to send again."""
    failures = batch.check_failures + 1
    delay = min(error.retry_after or 0.0, LONGEST_PAUSE) or poll_delay(
        run.settings.interval, 0, failures, run.ctx.random.random()
    )
    run.store.batches.checked(
        run.id,
        batch.number,
        status=None,
        counts=None,
        next_check_at=run.ctx.now() + timedelta(seconds=delay),
        failures=failures,
        expires_at=None,
    )
    looks = "a look failed" if failures == 1 else f"{failures:,} looks in a row failed"
    run.emit(
        "batch.look_failed",
        f"batch {batch.number} ({batch.batch_id}): {looks}: {error.message}" + (f"; {elsewhere}" if elsewhere else ""),
        batch=batch.number,
        level=Level.WARNING,
        data={"fault": str(error.fault), "status": error.status, "failures": failures},
    )


async def _move_on(run: HeldRun, batch: BatchRow, check: BatchCheck) -> None:
    now = run.ctx.now()
    run.elsewhere.pop(batch.number, None)
    unchanged = check.status == batch.provider_status
    moved = not unchanged or dict(check.counts) != dict(batch.provider_counts)
    stalled = not moved and batch.stalls_at is not None and batch.stalls_at <= now
    delay = poll_delay(run.settings.interval, _slowness(run, batch, now), 0, run.ctx.random.random())
    run.store.batches.checked(
        run.id,
        batch.number,
        status=check.status,
        counts=dict(check.counts),
        next_check_at=now + timedelta(seconds=delay),
        failures=0,
        expires_at=check.expires_at,
        stalls_at=now + STALL if moved or stalled or batch.stalls_at is None else None,
    )
    if stalled and check.phase is Phase.IN_PROGRESS and batch.state in RUNNING:
        _say_stalled(run, batch, check)
    if not unchanged:
        run.emit(
            "batch.status",
            f"batch {batch.number} ({batch.batch_id}): {check.status}",
            batch=batch.number,
            data={"status": check.status, "counts": dict(check.counts)},
        )
    await _by_phase(run, batch, check, now)


async def _by_phase(run: HeldRun, batch: BatchRow, check: BatchCheck, now: datetime) -> None:
    if batch.state is BatchState.ABANDONED and check.phase is not Phase.ENDED:
        _see_given_up(run, batch, check, now)
        return
    match check.phase:
        case Phase.IN_PROGRESS | Phase.CANCELING:
            await _watch_deadline(run, batch, check, now)
        case Phase.FAILED if not batch.certain:
            if batch.state in RUNNING:
                run.store.batches.ended(run.id, batch.number, at=now)
            disown(run, batch, f"is {check.status}, and nothing shows that it was ours")
        case Phase.FAILED if batch.state is BatchState.ENDED:
            # it was complete before: whatever happened there, it may have been answered
            await collect(run, batch, replace(check, unexplained=True))
        case Phase.FAILED:
            await rejected(run, batch, check)
        case Phase.ENDED:
            _note_end(run, batch, check, now)
            await collect(run, run.batch(batch.number), check)


def _note_end(run: HeldRun, batch: BatchRow, check: BatchCheck, now: datetime) -> None:
    """Write down that a batch has ended.

    One found canceled past its deadline was canceled for that, by a newer state file than this copy: it may go again.
    """
    if batch.state is BatchState.IN_PROGRESS and check.canceled and _past_deadline(run, batch, check, now):
        run.store.batches.canceling(run.id, batch.number, CancelCause.DEADLINE)
    if batch.state in RUNNING:
        run.store.batches.ended(run.id, batch.number, at=now)


def _see_given_up(run: HeldRun, batch: BatchRow, check: BatchCheck, now: datetime) -> None:
    """Let a given-up batch go that failed, or runs longer than its answers would be kept."""
    clock, started = check.server_time or now, check.created_at or batch.submitted_at or now
    if check.phase is Phase.FAILED:
        _let_go(run, batch, f"it is {check.status}")
    elif clock >= started + KEPT:
        _let_go(run, batch, f"it is still {check.status} when its answers would be deleted")


def _say_stalled(run: HeldRun, batch: BatchRow, check: BatchCheck) -> None:
    """A batch that does not get on is said, once and then rarely; it is waited for all the same (field report 21)."""
    counts = ", ".join(f"{count:,} {name}" for name, count in check.counts.items()) or "no counts"
    run.emit(
        "batch.stalled",
        f"batch {batch.number} ({batch.batch_id}) has not got on for {STALL.total_seconds() / 3600:.0f} hours: "
        f"{check.status}, {counts}; it is canceled at its deadline, and only what it has not finished goes again",
        batch=batch.number,
        level=Level.WARNING,
        data={"status": check.status, "counts": dict(check.counts)},
    )


def _slowness(run: HeldRun, batch: BatchRow, now: datetime) -> int:
    """How far looks are spaced out: a batch that has run for hours is not asked every minute."""
    if batch.submitted_at is None:
        return 0
    return max(0, int((now - batch.submitted_at).total_seconds() / (LOOKS_A_STEP * run.settings.interval)))


async def _watch_deadline(run: HeldRun, batch: BatchRow, check: BatchCheck, now: datetime) -> None:
    """Cancel a batch that is past its time, so that what it finished can be collected and the rest goes again."""
    assert batch.batch_id is not None
    if not batch.certain and not _past_expiry(check, now):
        return  # it may be somebody else's: only its results tell, so it gets the provider's own time
    if batch.state is BatchState.CANCELING:
        run.store.batches.looked(run.id, batch.number)
    if batch.state is BatchState.CANCELING and check.phase is Phase.IN_PROGRESS:
        await run.provider.cancel(batch.batch_id)
    if batch.state is not BatchState.IN_PROGRESS or not _past_deadline(run, batch, check, now):
        return
    run.store.batches.canceling(run.id, batch.number, CancelCause.DEADLINE)
    run.emit(
        "batch.overdue",
        f"batch {batch.number} ({batch.batch_id}) is past its deadline and still {check.status}: canceling it; "
        "its finished answers are kept, only the rest goes again",
        batch=batch.number,
        level=Level.WARNING,
    )
    await run.provider.cancel(batch.batch_id)


def _past_deadline(run: HeldRun, batch: BatchRow, check: BatchCheck, now: datetime) -> bool:
    """By the provider's own clock where it tells it, so that a wrong clock here cancels nothing."""
    clock = _clock(check, now)
    started = check.created_at or batch.submitted_at or now
    if clock >= started + timedelta(seconds=run.settings.deadline) + _grace(run):
        return True
    return _past_expiry(check, now)


def _past_expiry(check: BatchCheck, now: datetime) -> bool:
    """Whether the provider has not even kept its own deadline."""
    clock = _clock(check, now)
    return check.expires_at is not None and clock >= check.expires_at + timedelta(seconds=EXPIRY_GRACE)


def _clock(check: BatchCheck, now: datetime) -> datetime:
    """The provider's clock where it tells one that can be: no batch gets so old that its results would be deleted."""
    told = check.server_time
    impossible = told is not None and check.created_at is not None and told > check.created_at + KEPT
    return now if told is None or impossible else told


def _grace(run: HeldRun) -> timedelta:
    """A deadline equal to the provider's leaves the provider the time to expire the batch itself."""
    return timedelta(seconds=EXPIRY_GRACE if run.settings.deadline >= 24 * 3600 else 0)
