"""The command of the sync lane."""

from __future__ import annotations

from typing import Any

import click

from batchctl.cli.env import option, state_options
from batchctl.cli.options import INPUT_OPTIONS, RUN_OPTIONS, SYNC_OPTIONS, sync_settings, with_options
from batchctl.cli.sending import plan_request
from batchctl.cli.session import work
from batchctl.cli.steering import simulated


@click.command()
@click.argument("items", nargs=-1, metavar="[ITEMS…]")
@option("--run", "run_name", metavar="RUN", help="Send what this run still has open, whatever lane it began in.")
@with_options(INPUT_OPTIONS, RUN_OPTIONS, SYNC_OPTIONS)
@click.pass_context
def fanout(ctx: click.Context, /, items: tuple[str, ...], run_name: str | None, **given: Any) -> None:
    """Send items one by one at the account's limits, with answers at once: a new run, or the rest of one.

    ITEMS from standard input or a FIFO may go on for ever: they are sent as they come.
    """
    from batchctl.cli.standing import runs_of, summed_up
    from batchctl.runs import fanout as verbs

    options = state_options(ctx)
    if bool(items) == (run_name is not None):
        raise click.UsageError("give ITEMS, or --run RUN")
    if run_name is not None:
        name, changes = run_name, sync_settings(given)
        if given["max_cost"] is not None:
            changes["max_cost"] = given["max_cost"]
        simulate = simulated(runs_of(options["state"], (name,)))
        verb = lambda c: verbs.fanout_run(c, name, changes)  # noqa: E731
    else:
        request = plan_request(options, items, given)
        name, simulate = request.name, [request.name] if given["simulate"] else []
        verb = lambda c: verbs.fanout(c, request)  # noqa: E731
    with summed_up(options, name):
        work(options, verb, simulate=simulate, faults=given["faults"], goes_on=run_name is not None, fast=True)
