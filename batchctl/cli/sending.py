"""Commands that start runs: submit, run, plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from batchctl.cli.env import option, state_options
from batchctl.cli.options import BATCH_OPTIONS, INPUT_OPTIONS, RUN_OPTIONS, settings_from, with_options
from batchctl.cli.session import work
from batchctl.core.errors import InputError
from batchctl.runs.context import Context
from batchctl.runs.naming import free_name, made_name
from batchctl.runs.planning import PlanRequest

ITEMS = click.argument("items", nargs=-1, required=True, metavar="ITEMS…")


def plan_request(options: dict[str, Any], items: tuple[str, ...], given: dict[str, Any]) -> PlanRequest:
    """The request of a command that starts or continues a run."""
    settings = settings_from(given)
    name = given.get("name") or made_name(items, settings)
    if given.get("new"):
        name = free_name(options["state"], name)
    out = given.get("out") or str(Path("runs") / name)
    if "://" not in out:
        out = str(Path(out).absolute())
    _refuse_twice(items)
    return PlanRequest(name=name, items=items, settings=settings, out=out, format=given["input_format"])


def _refuse_twice(items: tuple[str, ...]) -> None:
    """An input given twice has every id twice; that is better said in one line."""
    if twice := next((path for path in items if items.count(path) > 1), None):
        raise InputError(f"{twice} is given twice", hint="name each file once")


@click.command()
@ITEMS
@with_options(INPUT_OPTIONS, RUN_OPTIONS, BATCH_OPTIONS)
@click.pass_context
def submit(ctx: click.Context, /, items: tuple[str, ...], **given: Any) -> None:
    """Plan and submit a run; prints its name, then the ids of its batches.

    The same command again goes on where it stopped and never starts over.
    """
    from batchctl.cli.standing import run_before, say_standing
    from batchctl.runs import verbs

    options = state_options(ctx)
    request = plan_request(options, items, given)
    before = run_before(options["state"], request.name)

    async def verb(c: Context) -> verbs.Submitted:
        submitted = await verbs.submit(c, request)
        if before:  # a new run has said everything
            say_standing(c, before)
        return submitted

    done = work(
        options,
        verb,
        simulate=[request.name] if given["simulate"] else (),
        faults=given["faults"],
    )
    click.echo(done.name)
    for batch_id in done.batch_ids:
        click.echo(batch_id)


@click.command()
@ITEMS
@with_options(INPUT_OPTIONS, RUN_OPTIONS, BATCH_OPTIONS)
@click.pass_context
def run(ctx: click.Context, /, items: tuple[str, ...], **given: Any) -> None:
    """Submit, poll and resubmit to the end, with live progress: the main job in one command."""
    from batchctl.cli.standing import summed_up
    from batchctl.runs import verbs

    options = state_options(ctx)
    request = plan_request(options, items, given)
    with summed_up(options, request.name):
        work(
            options,
            lambda c: verbs.run_to_end(c, request),
            simulate=[request.name] if given["simulate"] else (),
            faults=given["faults"],
        )


@click.command()
@ITEMS
@with_options(INPUT_OPTIONS, RUN_OPTIONS, BATCH_OPTIONS)
@option("--json", "as_json", is_flag=True, help="One JSON line.")
@click.pass_context
def plan(ctx: click.Context, /, items: tuple[str, ...], *, as_json: bool, **given: Any) -> None:
    """Say what submit would do: batches, bytes, tokens, cost, problems by line. Sends and creates nothing."""
    from batchctl.cli.planning import show_plan
    from batchctl.runs.planning import survey

    request = plan_request(state_options(ctx), items, given)
    show_plan(request, survey(request), as_json=as_json)
