"""The command that says what is wrong and mends what can be mended."""

from __future__ import annotations

import click

from batchctl.cli.env import option, state_options
from batchctl.cli.session import work
from batchctl.cli.standing import simulated_runs
from batchctl.cli.text import commands_for, safe


@click.command()
@click.argument("run", required=False)
@option("--repair", is_flag=True, help="Mend what can be mended; nothing is sent to a model.")
@click.pass_context
def doctor(ctx: click.Context, run: str | None, *, repair: bool) -> None:
    """Say what is wrong with the state file and the runs; exit 1 while something is.

    Looks at the state file, the result files, the requests, what died processes left, and the provider's lists.
    """
    from batchctl.runs.doctor import examine

    options = state_options(ctx)
    found = work(
        options, lambda c: examine(c, run, repair=repair), simulate=simulated_runs(options["state"]), goes_on=True
    )
    for finding in found:
        click.echo(safe(commands_for(str(finding), options["state_given"])))
    if not found:
        click.echo("nothing is wrong", err=True)
    if any(not finding.mended for finding in found):
        raise SystemExit(1)
