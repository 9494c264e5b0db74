"""Read-only commands: tables for people, JSON lines for programs."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from batchctl.cli.env import option, state_options
from batchctl.cli.spreadsheet import csv_chunks
from batchctl.cli.text import commands_for, error_table, json_safe, safe, table, table_lines
from batchctl.core.durations import format_duration
from batchctl.core.model import ItemState, Outcome
from batchctl.runs import reading
from batchctl.state.rows import BatchRow, stamp
from batchctl.state.store import Store

RUN = click.argument("run")
JSON = option("--json", "as_json", is_flag=True, help="JSON lines.")


def _open(ctx: click.Context) -> Store:
    return Store.open(state_options(ctx)["state"], readonly=True)


def _json_lines(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        click.echo(json_safe(msgspec.json.encode(row).decode()))


@click.command()
@click.argument("run", required=False)
@JSON
@click.pass_context
def status(ctx: click.Context, run: str | None, *, as_json: bool) -> None:
    """Where the runs stand, one line each."""
    with _open(ctx) as store:
        rows = [reading.run_named(store, run)] if run else store.runs.all()
        statuses = [_with_state(ctx, reading.status_of(store, row)) for row in rows]
    if as_json:
        _json_lines(statuses)
        return
    if not statuses:
        click.echo(f"no runs in {state_options(ctx)['state']}", err=True)
        return
    header = ("run", "state", "planned", "succeeded", "failed", "open", "batches", "cost $", "needs")
    click.echo(table(header, [_status_row(entry) for entry in statuses]))


def _with_state(ctx: click.Context, entry: dict[str, Any]) -> dict[str, Any]:
    """The commands in what a run needs, as they must be given."""
    needs = entry["needs"]
    return entry | {"needs": needs and commands_for(needs, state_options(ctx)["state_given"])}


def _status_row(entry: dict[str, Any]) -> tuple[object, ...]:
    counts, batches = entry["counts"], entry["batches"]
    shown = " ".join(f"{count} {name}" for name, count in batches.items() if count)
    return (
        entry["run"],
        entry["state"],
        counts["planned"],
        counts["succeeded"],
        counts["failed"],
        counts["open"],
        shown or "-",
        entry["cost_usd"],
        entry["needs"] or "",
    )


@click.command()
@RUN
@JSON
@click.pass_context
def show(ctx: click.Context, run: str, *, as_json: bool) -> None:
    """One run in full: counts, batches, tokens, cost, errors by kind."""
    with _open(ctx) as store:
        row = reading.run_named(store, run)
        entry = _with_state(ctx, reading.status_of(store, row)) | {
            "provider": row.provider,
            "endpoint": row.endpoint,
            "model": row.model,
            "fingerprint": row.fingerprint,
            "inputs": row.inputs,
            "out": row.out,
            "errors": [asdict(group) for group in reading.error_groups(store, row)],
        }
        batches = store.batches.all(row.id)
    if as_json:
        _json_lines([entry])
        return
    for key in ("run", "state", "provider", "endpoint", "model", "out", "created_at", "updated_at", "cost_usd"):
        click.echo(f"{key:12} {safe(str(entry[key]))}")
    for key in ("counts", "outcomes", "attempts", "tokens"):
        click.echo(f"{key:12} " + (", ".join(f"{count:,} {name}" for name, count in entry[key].items()) or "none"))
    if entry["needs"]:
        click.echo(f"needs        {safe(entry['needs'])}")
    click.echo()
    click.echo(_batch_table(batches) if batches else "no batches")
    if entry["errors"]:
        click.echo()
        click.echo(error_table(entry["errors"]))


def _batch_table(batches: list[BatchRow]) -> str:
    """Batches in a table, with a column for each kind of end that any of them met."""
    now = datetime.now(UTC)
    ends = [
        str(outcome)
        for outcome in Outcome
        if outcome in (Outcome.SUCCEEDED, Outcome.ERRORED) or any(getattr(batch, str(outcome)) for batch in batches)
    ]
    rows = [
        (
            batch.number,
            batch.batch_id,
            str(batch.state),
            batch.provider_status,
            batch.round,
            batch.requests,
            *(getattr(batch, end) for end in ends),
            None if (seconds := reading.age_of(batch, now)) is None else format_duration(seconds),
        )
        for batch in batches
    ]
    return table(("batch", "id", "state", "provider", "round", "requests", *ends, "age"), rows)


@click.command()
@RUN
@JSON
@click.pass_context
def batches(ctx: click.Context, run: str, *, as_json: bool) -> None:
    """The batches of a run."""
    with _open(ctx) as store:
        rows = store.batches.all(reading.run_named(store, run).id)
    if as_json:
        _json_lines(reading.batch_as_dict(batch) for batch in rows)
    elif rows:
        click.echo(_batch_table(rows))
    else:
        click.echo(f"run {run} has no batches", err=True)


@click.command()
@RUN
@option(
    "--state",
    "state",
    envvar="BATCHCTL_ITEM_STATE",  # the plain name is the state file's
    type=click.Choice([str(state) for state in ItemState]),
    help="Only these.",
)
@option("--outcome", type=click.Choice([str(outcome) for outcome in Outcome]), help="Only these.")
@JSON
@click.pass_context
def items(ctx: click.Context, run: str, state: str | None, outcome: str | None, *, as_json: bool) -> None:
    """The items of a run in input order."""
    with _open(ctx) as store:
        row = reading.run_named(store, run)
        by_number = {batch.number: batch for batch in store.batches.all(row.id)}
        found = (
            reading.item_as_dict(item, by_number)
            for item in store.items.each(
                row.id, state=ItemState(state) if state else None, outcome=Outcome(outcome) if outcome else None
            )
        )
        if as_json:
            _json_lines(found)
            return
        header = ("id", "state", "outcome", "round", "attempts", "batch", "batch_id", "line")
        for line in table_lines(header, ([entry[name] for name in header] for entry in found)):
            click.echo(line)


@click.command()
@RUN
@option("--ordered", is_flag=True, help="In the order of the input.")
@option("--csv", "as_csv", is_flag=True, help="As CSV: id, answer, and a column for each property of --schema.")
@JSON
@click.pass_context
def results(ctx: click.Context, run: str, *, ordered: bool, as_csv: bool, as_json: bool) -> None:
    """The lines of results.jsonl, as JSON lines."""
    if as_csv and as_json:
        raise click.UsageError("--csv and --json are two forms: give one")
    _pour(ctx, run, "results.jsonl", ordered=ordered, as_csv=as_csv)


@click.command()
@RUN
@option("--ordered", is_flag=True, help="In the order of the input.")
@option("--summary", is_flag=True, help="Count by kind instead.")
@JSON
@click.pass_context
def errors(ctx: click.Context, run: str, *, ordered: bool, summary: bool, as_json: bool) -> None:
    """The lines of errors.jsonl: items that failed for good, as JSON lines."""
    if not summary:
        _pour(ctx, run, "errors.jsonl", ordered=ordered)
        return
    with _open(ctx) as store:
        groups = [asdict(group) for group in reading.error_groups(store, reading.run_named(store, run))]
    if as_json:
        _json_lines(groups)
    else:
        click.echo(error_table(groups) if groups else f"run {run} has no errors", err=not groups)


def _pour(ctx: click.Context, run: str, name: str, *, ordered: bool, as_csv: bool = False) -> None:
    with _open(ctx) as store:
        row = reading.run_named(store, run)
        state: Path = store.path
        chunks: Iterator[bytes] = (
            reading.ordered_lines(state, store, row, name) if ordered else reading.result_lines(state, row, name)
        )
        if as_csv:
            for text in csv_chunks(chunks, row.settings.get("schema")):
                click.echo(safe(text) if sys.stdout.isatty() else text, nl=False)
            return
        if sys.stdout.isatty():
            for text in codecs.iterdecode(chunks, "utf-8", "replace"):
                click.echo(json_safe(text), nl=False)
            return
        out = sys.stdout.buffer
        for chunk in chunks:
            out.write(chunk)
        out.flush()


@click.command()
@RUN
@JSON
@click.pass_context
def events(ctx: click.Context, run: str, *, as_json: bool) -> None:
    """What happened in a run, oldest first."""
    with _open(ctx) as store:
        row = reading.run_named(store, run)
        after = 0
        while page := store.events.list(row.id, after_id=after):
            after = page[-1].id
            for event in page:
                at = stamp(event.at)
                if as_json:
                    entry = {"at": at, "level": event.level, "kind": event.kind, "batch": event.batch}
                    _json_lines([entry | {"text": event.text, "data": event.data}])
                else:
                    click.echo(f"{at} {event.kind:18} {safe(event.text)}")
