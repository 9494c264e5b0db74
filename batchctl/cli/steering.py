"""Commands that move existing runs on: poll, resubmit, cancel, accept, adopt."""

from __future__ import annotations

from collections.abc import Sequence

import click

from batchctl.cli.env import option, state_options
from batchctl.cli.options import DURATION
from batchctl.cli.session import work
from batchctl.cli.standing import runs_of, say_standing
from batchctl.runs.context import Context
from batchctl.state.rows import RunRow

RUNS = click.argument("runs", nargs=-1, metavar="[RUN…]")
RUN = click.argument("run")


def simulated(rows: Sequence[RunRow]) -> list[str]:
    """Those of these runs that live on the simulator."""
    return [row.name for row in rows if row.settings.get("simulate")]


@click.command()
@RUNS
@option("--wait", is_flag=True, help="Keep on until the runs are settled, with progress.")
@option("--wait-limit", type=DURATION, help="With --wait: stop waiting after this (exit 4).")
@option("--resubmit", "again", is_flag=True, help="Also send errored, expired and missing items again.")
@click.pass_context
def poll(ctx: click.Context, runs: tuple[str, ...], wait_limit: float | None, *, wait: bool, again: bool) -> None:
    """One pass over all open runs, or those named: settle lost creates, check, collect, send waiting batches."""
    from batchctl.runs import verbs

    options = state_options(ctx)
    rows = runs_of(options["state"], runs)
    wait = wait or wait_limit is not None

    async def verb(c: Context) -> None:
        if wait and (waited_for := [row for row in rows if row.finished_at is None]):
            say_standing(c, waited_for)
        await verbs.poll(c, runs, wait=wait, resubmit=again, limit=wait_limit)
        say_standing(c, rows)

    work(options, verb, simulate=simulated(rows), goes_on=True, several=len(rows) > 1)


@click.command()
@RUNS
@option("--failed", is_flag=True, help="Also, once more, items that failed for good.")
@option(
    "--abandon",
    type=click.IntRange(min=1),
    metavar="N",
    help="Give up batch N first: its cancel never ends, or its results are gone. Its items may be paid twice.",
)
@click.pass_context
def resubmit(ctx: click.Context, runs: tuple[str, ...], *, failed: bool, abandon: int | None) -> None:
    """Send errored, expired and missing items again in new, smaller batches, within the cap."""
    from batchctl.runs import verbs

    if (failed or abandon is not None) and len(runs) != 1:
        raise click.UsageError("--failed and --abandon want exactly one RUN")
    options = state_options(ctx)
    rows = runs_of(options["state"], runs)

    async def verb(c: Context) -> None:
        await verbs.resubmit(c, runs, failed=failed, abandon=abandon)
        say_standing(c, rows)

    work(options, verb, simulate=simulated(rows), goes_on=True, several=len(rows) > 1)


@click.command()
@RUN
@click.pass_context
def cancel(ctx: click.Context, run: str) -> None:
    """Stop a run: send nothing more, cancel its batches; what they finished is still collected by poll."""
    from batchctl.runs import verbs

    options = state_options(ctx)
    rows = runs_of(options["state"], (run,))

    async def verb(c: Context) -> None:
        await verbs.cancel(c, run)
        say_standing(c, rows)

    work(options, verb, simulate=simulated(rows), goes_on=True)


@click.command()
@RUN
@click.pass_context
def accept(ctx: click.Context, run: str) -> None:
    """Close a run as complete with exceptions: what has no answer gets its last error as its final line."""
    from batchctl.runs import verbs

    options = state_options(ctx)
    runs_of(options["state"], (run,))  # names what is not there, and makes nothing
    work(options, lambda c: verbs.accept(c, run))


@click.command()
@RUN
@click.argument("batch_id", required=False)
@option("--absent", type=click.IntRange(min=1), metavar="N", help="Batch N was surely never created: send it.")
@option("--batch", "number", type=click.IntRange(min=1), metavar="N", help="Which of our batches BATCH_ID is.")
@click.pass_context
def adopt(ctx: click.Context, run: str, batch_id: str | None, absent: int | None, number: int | None) -> None:
    """Settle an unknown create by hand: BATCH_ID is the provider's id of the lost batch."""
    from batchctl.runs import adopting

    if (batch_id is None) == (absent is None):
        raise click.UsageError("give BATCH_ID, or --absent N")
    options = state_options(ctx)
    work(
        options,
        lambda c: adopting.adopt(c, run, batch_id, absent=absent, number=number),
        simulate=simulated(runs_of(options["state"], (run,))),
        goes_on=True,
    )
