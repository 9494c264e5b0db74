"""Commands that move existing runs on: poll, resubmit, cancel, accept, adopt."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from batchctl.cli.env import option, state_options
from batchctl.cli.options import DURATION
from batchctl.cli.session import work
from batchctl.runs.context import utc_now

RUNS = click.argument("runs", nargs=-1, metavar="[RUN…]")
RUN = click.argument("run")


def simulated(state: Path, names: tuple[str, ...]) -> bool:
    """Whether one of these runs (or of all open ones) lives on the simulator.

    Raises:
        InputError: there is no state file, or no run of that name.
    """
    from batchctl.core.errors import InputError
    from batchctl.state.store import Store

    with Store.open(state, readonly=True) as store:
        if names:
            rows = [store.runs.get(name) for name in names]
            for name, row in zip(names, rows, strict=True):
                if row is None:
                    raise InputError(f"no run {name!r} in {state}", hint="`batchctl status` lists the runs")
        else:
            rows = list(store.runs.open())
    return any(row.settings.get("simulate") for row in rows if row is not None)


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
    until = None if wait_limit is None else utc_now() + timedelta(seconds=wait_limit)
    work(
        options,
        lambda c: verbs.poll(c, runs, wait=wait or wait_limit is not None, resubmit=again, until=until),
        simulate=simulated(options["state"], runs),
    )


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
    work(
        options,
        lambda c: verbs.resubmit(c, runs, failed=failed, abandon=abandon),
        simulate=simulated(options["state"], runs),
    )


@click.command()
@RUN
@click.pass_context
def cancel(ctx: click.Context, run: str) -> None:
    """Stop a run: send nothing more, cancel its batches; what they finished is still collected by poll."""
    from batchctl.runs import verbs

    options = state_options(ctx)
    work(options, lambda c: verbs.cancel(c, run), simulate=simulated(options["state"], (run,)))


@click.command()
@RUN
@click.pass_context
def accept(ctx: click.Context, run: str) -> None:
    """Close a run as complete with exceptions: what has no answer gets its last error as its final line."""
    from batchctl.runs import verbs

    work(state_options(ctx), lambda c: verbs.accept(c, run))


@click.command()
@RUN
@click.argument("batch_id", required=False)
@option("--absent", type=click.IntRange(min=1), metavar="N", help="Batch N was surely never created: send it.")
@option("--batch", "number", type=click.IntRange(min=1), metavar="N", help="Which unknown batch BATCH_ID is.")
@click.pass_context
def adopt(ctx: click.Context, run: str, batch_id: str | None, absent: int | None, number: int | None) -> None:
    """Settle an unknown create by hand: BATCH_ID is the provider's id of the lost batch."""
    from batchctl.runs import verbs

    if (batch_id is None) == (absent is None):
        raise click.UsageError("give BATCH_ID, or --absent N")
    options = state_options(ctx)
    work(
        options,
        lambda c: verbs.adopt(c, run, batch_id, absent=absent, number=number),
        simulate=simulated(options["state"], (run,)),
    )
