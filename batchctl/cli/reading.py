"""Read-only commands: tables for people, JSON lines for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from batchctl.cli.env import option, state_options
from batchctl.cli.text import age, safe, table
from batchctl.core.model import ItemState, Outcome
from batchctl.runs import reading
from batchctl.runs.manifest import rfc3339
from batchctl.state.store import Store

RUN = click.argument("run")
JSON = option("--json", "as_json", is_flag=True, help="JSON lines.")


def _open(ctx: click.Context) -> Store:
    return Store.open(state_options(ctx)["state"], readonly=True)


def _json_lines(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        click.echo(msgspec.json.encode(row).decode())


@click.command()
@click.argument("run", required=False)
@JSON
@click.pass_context
def status(ctx: click.Context, run: str | None, *, as_json: bool) -> None:
    """Where the runs stand, one line each."""
    with _open(ctx) as store:
        rows = [reading.run_named(store, run)] if run else store.runs.all()
        statuses = [reading.status_of(store, row) for row in rows]
    if as_json:
        _json_lines(statuses)
        return
    header = ("run", "state", "planned", "succeeded", "failed", "open", "batches", "cost $", "needs")
    click.echo(table(header, [_status_row(entry) for entry in statuses]))


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
        entry = reading.status_of(store, row) | {
            "provider": row.provider,
            "endpoint": row.endpoint,
            "model": row.model,
            "fingerprint": row.fingerprint,
            "inputs": row.inputs,
            "out": row.out,
            "errors": [asdict(group) for group in store.items.error_groups(row.id)],
        }
        batches = store.batches.all(row.id)
    if as_json:
        _json_lines([entry])
        return
    for key in ("run", "state", "provider", "endpoint", "model", "out", "created_at", "updated_at", "cost_usd"):
        click.echo(f"{key:12} {safe(str(entry[key]))}")
    for key in ("counts", "outcomes", "tokens"):
        click.echo(f"{key:12} " + ", ".join(f"{count:,} {name}" for name, count in entry[key].items()))
    if entry["needs"]:
        click.echo(f"needs        {safe(entry['needs'])}")
    click.echo()
    click.echo(_batch_table(batches))
    if entry["errors"]:
        click.echo()
        click.echo(_error_table(entry["errors"]))


def _error_table(groups: list[dict[str, Any]]) -> str:
    rows = [
        (group["count"], group["outcome"], group["error_type"], (group["error_message"] or "")[:80]) for group in groups
    ]
    return table(("items", "outcome", "error", "message"), rows)


def _batch_table(batches: list[Any]) -> str:
    now = datetime.now(UTC)
    rows = [
        (
            batch.number,
            batch.batch_id,
            str(batch.state),
            batch.provider_status,
            batch.round,
            batch.requests,
            batch.succeeded,
            batch.errored + batch.invalid,
            batch.expired + batch.canceled + batch.missing,
            None if (seconds := reading.age_of(batch, now)) is None else age(seconds),
        )
        for batch in batches
    ]
    header = ("batch", "id", "state", "provider", "round", "requests", "succeeded", "errored", "expired…", "age")
    return table(header, rows)


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
    else:
        click.echo(_batch_table(rows))


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
            for item in reading.items_of(
                store, row, ItemState(state) if state else None, Outcome(outcome) if outcome else None
            )
        )
        if as_json:
            _json_lines(found)
            return
        for entry in found:
            cells = (entry["id"], entry["state"], entry["outcome"], f"round {entry['round']}", entry["batch_id"])
            click.echo("\t".join("-" if cell is None else safe(str(cell)) for cell in cells))


@click.command()
@RUN
@option("--ordered", is_flag=True, help="In the order of the input.")
@JSON
@click.pass_context
def results(ctx: click.Context, run: str, *, ordered: bool, as_json: bool) -> None:  # noqa: ARG001  # always JSON
    """The lines of results.jsonl, as JSON lines."""
    _pour(ctx, run, "results.jsonl", ordered=ordered)


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
        groups = [asdict(group) for group in store.items.error_groups(reading.run_named(store, run).id)]
    if as_json:
        _json_lines(groups)
    else:
        click.echo(_error_table(groups))


def _pour(ctx: click.Context, run: str, name: str, *, ordered: bool) -> None:
    with _open(ctx) as store:
        row = reading.run_named(store, run)
        state: Path = store.path
        chunks: Iterator[bytes] = (
            reading.ordered_lines(state, store, row, name) if ordered else reading.result_lines(state, row, name)
        )
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
                at = rfc3339(event.at)
                if as_json:
                    entry = {"at": at, "level": event.level, "kind": event.kind, "batch": event.batch}
                    _json_lines([entry | {"text": event.text, "data": event.data}])
                else:
                    click.echo(f"{at} {event.kind:18} {safe(event.text)}")


def say_summary(state: Path, name: str) -> None:
    """How a run stands after a command that worked on it, on stderr."""
    if not state.exists():
        return
    with Store.open(state, readonly=True) as store:
        row = store.runs.get(name)
        if row is None:
            return
        groups = [asdict(group) for group in store.items.error_groups(row.id)]
        rounds = max((batch.round for batch in store.batches.all(row.id)), default=0)
        count = len([batch for batch in store.batches.all(row.id) if batch.batch_id])
    click.echo(
        f"{row.name}: {row.state}; {row.planned:,} planned = {row.succeeded:,} succeeded + {row.failed:,} failed + "
        f"{row.open:,} open; {count:,} batches, {rounds} rounds of resubmission; "
        f"{row.input_tokens:,} + {row.output_tokens:,} tokens, ${row.cost_usd:,.4f}"
        + (f" ({row.unpriced:,} answers without a known price)" if row.unpriced else ""),
        err=True,
    )
    if groups:
        click.echo(_error_table(groups), err=True)
    if row.needs:
        click.echo(f"needs: {safe(row.needs)}", err=True)
    click.echo(f"files: {row.out}", err=True)
