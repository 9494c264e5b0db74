"""The report of a run: one HTML page of its own, made from the store and the recorded part of the result files."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from dataclasses import astuple
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from batchctl.core.durations import format_duration
from batchctl.core.errors import InputError
from batchctl.core.model import Outcome
from batchctl.files.names import workdir
from batchctl.files.outputs import OutputFolder
from batchctl.runs import svg
from batchctl.runs.page import Html, note, page, section, table, tag, tiles
from batchctl.runs.reading import result_lines, run_named
from batchctl.runs.report_facts import POINTS, Facts, read_facts
from batchctl.runs.tally import Spent, Tally, bins_of, lines_of, quantile, tally, watched
from batchctl.state.rows import BatchRow, RunRow, stamp
from batchctl.state.store import Store

REPORT = "report.html"
MOST_ROWS = 200  # of batches and of inputs; the page must open in a browser whatever the run's size
LONGEST_TEXT = 2_000
LONGEST_MESSAGE = 500


def build(store: Store, name: str, now: datetime) -> bytes:
    """The page of a run, as bytes of HTML.

    Raises:
        InputError: there is no such run.
        StorageError: a result file is missing.
    """
    facts = read_facts(store, name, now)
    digests = {file: hashlib.sha256() for file in ("results.jsonl", "errors.jsonl")}
    results, errors = (
        watched(result_lines(store.path, facts.row, file), digest.update) for file, digest in digests.items()
    )
    answers = tally(results)
    lines = (answers.lines, sum(1 for _ in lines_of(errors)))
    return page(
        f"batchctl: {facts.row.name}",
        _head(facts, now),
        _outcomes(facts),
        _settled(facts),
        _batches(facts),
        _results(answers),
        _spent(facts.row, answers),
        _errors(facts),
        _settings(facts.row),
        _inputs(facts.row),
        _files(facts.row, lines, [digest.hexdigest() for digest in digests.values()]),
    )


def save(store: Store, name: str, html: bytes, out: str | None) -> str:
    """Write the page, whole or not at all, and return where it is.

    Args:
        out: a file, a folder or a URI; None is the run's output folder.

    Raises:
        InputError: the name is not one of a page, so that no other file is replaced by mistake.
    """
    row = run_named(store, name)
    place, file = (row.out, REPORT) if out is None or out == row.out else os.path.split(out)
    if out is not None and Path(out).is_dir():
        place, file = out, REPORT
    if not file.endswith((".html", ".htm")):
        raise InputError(f"{out} is no name of a page", hint="let it end in .html, or name a folder")
    folder = OutputFolder(place or ".", workdir(store.path, row.name))
    folder.write_atomic(file, html)
    folder.publish([file])
    return f"{folder.place}/{file}" if folder.is_remote else str(folder.local / file)


def _head(facts: Facts, now: datetime) -> Html:
    row = facts.row
    sent = [batch for batch in facts.batches if batch.batch_id]
    model = row.model or "models of the requests"
    ended = f"finished {stamp(row.finished_at)}" if row.finished_at else f"last changed {stamp(row.updated_at)}"
    made = f"Read from the state file at {stamp(now)}."
    moved = " The run was being worked on: figures may be some seconds apart." if not facts.still else ""
    return tag(
        "header",
        tag("h1", f"{row.name}: {row.state}"),
        tag("p", f"{row.provider} · {model} · {row.endpoint}"),
        note(f"Started {stamp(row.created_at)}, {ended}. {made}{moved}"),
        tag("p", row.needs, class_="needs") if row.needs else "",
        tiles([
            ("planned", row.planned), ("= succeeded", row.succeeded), ("+ failed", row.failed), ("+ open", row.open),
        ]),
        tiles([
            ("cost", f"${row.cost_usd:,.4f}"), ("tokens in", row.input_tokens), ("tokens out", row.output_tokens),
            ("batches sent", len(sent)), ("time", format_duration(facts.span)),
        ]),
    )  # fmt: skip


def _outcomes(facts: Facts) -> Html:
    total = sum(facts.outcomes.values())
    order = sorted(facts.outcomes.items(), key=lambda entry: -entry[1])
    rows = [(name, count, svg.meter(count, total, name)) for name, count in order]
    said = "Counted by attempt: an item that was sent three times counts three times."
    return section("Outcomes", table(said, ("outcome", "attempts", "share"), rows) if rows else note("None yet."))


def _settled(facts: Facts) -> Html:
    row = facts.row
    sums = facts.settled()
    untimed = row.succeeded - sums[-1][1]
    rows = [(svg.elapsed(at), *sums[int(POINTS * at / facts.span)][1:]) for at in [*svg.ticks(facts.span), facts.span]]
    return section(
        "Items settled over time",
        svg.legend([("succeeded", row.succeeded), ("failed", row.failed), ("open", row.open)]),
        svg.settled(f"Items settled since the start, of {row.planned:,}", sums, facts.span, row.planned),
        note(f"{untimed:,} answers of the sync lane carry no time of their own and are not drawn.")
        if untimed > 0
        else "",
        _figures(table("Items settled since the start", ("time", "succeeded", "failed"), rows)),
    )


def _batches(facts: Facts) -> Html:
    if not facts.batches:
        return section("Batches", note("None yet."))
    shown = facts.batches[-MOST_ROWS:]
    sent = [batch for batch in shown if batch.submitted_at]
    states = Counter(str(batch.state) for batch in facts.batches)
    seen = [outcome for outcome in Outcome if any(getattr(batch, outcome) for batch in shown)]
    header = ("batch", "id", "state", "round", "requests", *map(str, seen), "submitted", "took")
    rows = [_batch_row(facts, batch, seen) for batch in shown]
    earlier = f"earlier batches; `batchctl batches {facts.row.name}` has them all"
    return section(
        "Batches",
        svg.legend(states.most_common()),
        svg.timeline("Batches from submitted to ended", [_bar(facts, batch) for batch in sent], facts.span),
        _left_out(len(facts.batches) - len(shown), earlier),
        table("Batches by number; times are since the start", header, rows),
    )


def _bar(facts: Facts, batch: BatchRow) -> svg.Bar:
    assert batch.submitted_at is not None  # only sent ones are drawn
    start = facts.since_start(batch.submitted_at)
    end = max(start, facts.since_start(batch.ended_at or facts.end))
    counts = ", ".join(f"{count:,} {outcome}" for outcome in Outcome if (count := getattr(batch, outcome)))
    title = f"batch {batch.number}, {batch.batch_id}, {batch.state}, round {batch.round}, {batch.requests:,} requests"
    took = format_duration(end - start)
    return svg.Bar(
        f"{batch.number} · r{batch.round}", start, end, str(batch.state), f"{title}: {counts or 'no answers'}; {took}"
    )


def _batch_row(facts: Facts, batch: BatchRow, seen: list[Outcome]) -> tuple[object, ...]:
    counts = (getattr(batch, outcome) for outcome in seen)
    key = (batch.number, tag("code", batch.batch_id), str(batch.state), batch.round, batch.requests)
    if batch.submitted_at is None:
        return (*key, *counts, None, None)
    start, end = (facts.since_start(moment) for moment in (batch.submitted_at, batch.ended_at or facts.end))
    return (*key, *counts, svg.elapsed(start), svg.took(end - start))


def _results(answers: Tally) -> Html:
    read = answers.lines - answers.unreadable
    if not answers.lines:
        return section("Results", note("None yet."))
    bins = bins_of(answers.lengths)
    middle, high = quantile(answers.lengths, 0.5), quantile(answers.lengths, 0.95)
    wrong = f"{answers.unreadable:,} lines of results.jsonl cannot be read: it was changed. `batchctl doctor` looks."
    return section(
        "Results",
        tag("p", wrong, class_="needs") if answers.unreadable else "",
        *(
            table(f"Answers by {name.replace('_', ' ')}", (name, "answers", "share"), _shares(counts, read))
            for name, counts in (("stop_reason", answers.stop_reasons), ("model", answers.models))
        ),
        note("Answers by output tokens"),
        svg.histogram("Answers by output tokens", bins, "output tokens"),
        note(f"Output tokens of an answer: half have {middle:,} at most, 95 % have {high:,} at most."),
        _figures(table("Answers by output tokens", ("output tokens", "answers"), bins)),
    )


def _shares(counts: Counter[str], total: int) -> list[tuple[object, ...]]:
    return [(name, count, svg.meter(count, total)) for name, count in counts.most_common()]


def _spent(row: RunRow, answers: Tally) -> Html:
    groups = sorted(answers.rounds.items())
    whole = Spent(row.succeeded, row.input_tokens, row.cached_input_tokens, row.output_tokens, row.cost_usd)
    rows = [(f"{lane}, round {number}", *astuple(spent)) for (lane, number), spent in groups]
    rest = whole.less(spent for _, spent in groups)
    if rest != Spent():
        rows.append(("not in results.jsonl", None, *astuple(rest)[1:]))
    rows.append(("all", *astuple(whole)))
    unpriced = f"{row.unpriced:,} answers are of a model without a known price and count as 0."
    return section(
        "Tokens and cost",
        table("By lane and round", ("", "answers", "input", "of it cached", "output", "cost (USD)"), rows),
        note("An answer that failed the reply check is paid for too.") if rest != Spent() else "",
        note(unpriced) if row.unpriced else "",
    )


def _errors(facts: Facts) -> Html:
    failed = facts.row.failed
    if not facts.errors:
        return section("Errors", note("No item failed for good."))
    rows = [
        (str(group.outcome), group.error_type, group.error_code, _cut(group.error_message or "", LONGEST_MESSAGE),
         group.count, svg.meter(group.count, failed, str(group.outcome))) for group in facts.errors
    ]  # fmt: skip
    return section(
        "Errors",
        table("Failed items by their last error", ("outcome", "type", "code", "message", "items", "share"), rows),
        _left_out(failed - sum(group.count for group in facts.errors), "failed items with rarer errors"),
    )


def _settings(row: RunRow) -> Html:
    rows = [(name, _setting(value)) for name, value in row.settings.items() if value not in (None, {}, [], False)]
    rows.append(("fingerprint", Html(tag("code", row.fingerprint))))
    return section("Settings", table("What the run was asked for", ("setting", "value"), rows))


def _setting(value: Any) -> Html:
    said = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    said = re.sub(r"//[^/@\s]*@", "//…@", said) if re.match(r"\w+://", said) else said
    return tag("pre", _cut(said, LONGEST_TEXT))


def _inputs(row: RunRow) -> Html:
    shown = row.inputs[:MOST_ROWS]
    rows = [(entry.get("path"), entry.get("bytes"), tag("code", entry.get("sha256"))) for entry in shown]
    return section(
        "Inputs",
        table("As they were read", ("path", "bytes", "SHA-256"), rows) if rows else note("None yet."),
        _left_out(len(row.inputs) - len(shown), "more inputs"),
    )


def _files(row: RunRow, lines: tuple[int, int], digests: list[str]) -> Html:
    folder = row.out.rstrip("/")
    names = [f"{folder}/{name}" for name in ("results.jsonl", "errors.jsonl")]
    codes = [tag("code", digest) for digest in digests]
    rows = zip(names, lines, (row.results_bytes, row.errors_bytes), codes, strict=True)
    return section(
        "Files",
        table("As far as they are recorded", ("path", "lines", "bytes", "SHA-256"), rows),
        note(f"{folder}/manifest.json has the counts of every batch, once the run is done."),
    )


def _figures(content: Html) -> Html:
    return tag("details", tag("summary", "The figures"), content)


def _left_out(count: int, what: str) -> Html | str:
    return note(f"Not shown: {count:,} {what}.") if count > 0 else ""


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text):,} characters in all)"
