"""The command that makes a page of a run; it reads only, and takes no lock."""

from __future__ import annotations

import sys

import click

from batchctl.cli.env import option, state_options
from batchctl.cli.text import safe
from batchctl.runs.context import utc_now
from batchctl.state.store import Store


@click.command()
@click.argument("run")
@option("--out", metavar="FILE", help="Where to write it, `-` for stdout; default: report.html among the run's files.")
@click.pass_context
def report(ctx: click.Context, run: str, out: str | None) -> None:
    """Make one HTML page of a run, with plots; it needs no network and no script."""
    from batchctl.runs.report import build, save

    with Store.open(state_options(ctx)["state"], readonly=True) as store:
        html = build(store, run, utc_now())
        if out == "-":
            sys.stdout.buffer.write(html)
            sys.stdout.buffer.flush()
        else:
            click.echo(safe(save(store, run, html, out)))
