"""What must hold when a run is settled, whatever happened to it before."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from batchctl.core.model import ItemState, RunState
from batchctl.simulator.answers import answer
from batchctl.state.salvage import damage_of
from batchctl.state.store import Store
from tests.torture.processes import KEY, SimulatorProcess
from tests.torture.schedules import CONCURRENCY, FINAL_KINDS, LAST_ROUND, ODD_KINDS, Schedule

MADE_HERE = frozenset({"items.jsonl", "prompt.txt", "output.txt"})
"""Files of the campaign itself."""
MAX_ATTEMPTS = 5
"""Calls an item gets in the sync lane, as by default."""


class Problem(NamedTuple):
    """A promise that was not kept."""

    kind: str
    text: str


def check(
    schedule: Schedule, folder: Path, ledger: list[dict[str, Any]], simulator: SimulatorProcess, *, kills: int
) -> list[Problem]:
    """Compare the state file, the result files and the simulator's ledger of what is ours."""
    results = _lines(folder / "out" / "results.jsonl")
    errors = _lines(folder / "out" / "errors.jsonl")
    found = [
        *_files(schedule, results, errors),
        *_books(schedule, folder, results, errors),
        *_paid(simulator, ledger, allowed=kills * CONCURRENCY if schedule.lane == "sync" else 0),
        *(_kept_of_calls(schedule, ledger, results) if schedule.lane == "sync" else _kept(folder, ledger, results)),
        *_answers(schedule, results),
        *_secrets(folder),
    ]
    with Store.open(folder / "state.db", readonly=True) as store:
        run = store.runs.get("r")
    canceled = any(step.verb == "cancel" for step in schedule.steps)  # an older copy may not know of it
    if run is not None and run.state is not RunState.CANCELED and not canceled:
        found += _failures(schedule, errors)
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def _files(schedule: Schedule, results: list[dict[str, Any]], errors: list[dict[str, Any]]) -> list[Problem]:
    """Each item once, in one of the two files."""
    wanted = Counter(f"{schedule.prefix}{number}" for number in range(1, schedule.items + 1))
    seen = Counter(str(line["id"]) for line in results + errors)
    return [Problem("files", f"{item} stands {seen[item]} times") for item in wanted | seen if seen[item] != 1]


def _books(
    schedule: Schedule, folder: Path, results: list[dict[str, Any]], errors: list[dict[str, Any]]
) -> list[Problem]:
    """The state file is sound, its counters agree with its rows, and its rows with the files."""
    found = []
    with Store.open(folder / "state.db", readonly=True) as store:
        run = store.runs.get("r")
        assert run is not None
        found += [Problem("database", text) for text in damage_of(store.path)]
        found += [Problem("books", text) for text in store.runs.verify(run.id)]
        if (run.planned, run.succeeded, run.failed) != (schedule.items, len(results), len(errors)):
            found.append(Problem("books", f"counts {run.planned} {run.succeeded} {run.failed} are not the files'"))
        for name, state in (("results.jsonl", ItemState.SUCCEEDED), ("errors.jsonl", ItemState.FAILED)):
            raw = (folder / "out" / name).read_bytes()
            for item in store.items.page(run.id, state=state):
                line = raw[item.out_offset or 0 : (item.out_offset or 0) + (item.out_length or 0)]
                if not line or json.loads(line)["id"] != item.id:
                    found.append(Problem("books", f"{item.id} is not where the state file says, in {name}"))
    manifest = json.loads((folder / "out" / "manifest.json").read_bytes())
    counts = manifest["counts"]
    if (counts["succeeded"], counts["failed"], counts["open"]) != (len(results), len(errors), 0):
        found.append(Problem("manifest", f"says {counts}"))
    return found


def _paid(simulator: SimulatorProcess, ledger: list[dict[str, Any]], *, allowed: int) -> list[Problem]:
    """No item was accepted while an earlier acceptance was alive or answered, but for calls in flight at a kill."""
    ours = {entry["digest"] for entry in ledger}
    found = [
        Problem("paid twice", json.dumps(violation))
        for violation in simulator.get("violations")
        if violation["digest"] in ours
    ]
    return found if len(found) > allowed else []


def _kept(folder: Path, ledger: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[Problem]:
    """What the provider answered with success is in results.jsonl, and every batch of ours is known."""
    bodies = {line["id"] for line in results}
    with Store.open(folder / "state.db", readonly=True) as store:
        run = store.runs.get("r")
        assert run is not None
        known = {batch.batch_id for batch in store.batches.all(run.id)}
        of_wire = {entry["custom_id"]: item_of(store, run.id, entry["custom_id"]) for entry in ledger}
    found = [
        Problem("lost result", f"{of_wire[entry['custom_id']]} was answered in {entry['batch_id']}")
        for entry in ledger
        if entry["outcome"] == "succeeded" and of_wire[entry["custom_id"]] not in bodies
    ]
    lost = {entry["batch_id"] for entry in ledger if entry["batch_id"]} - known
    refused = {entry["batch_id"] for entry in ledger if entry["outcome"] == "failed"}
    return found + [Problem("lost batch", str(batch_id)) for batch_id in sorted(lost - refused)]


def _kept_of_calls(schedule: Schedule, ledger: list[dict[str, Any]], results: list[dict[str, Any]]) -> list[Problem]:
    """Calls carry no id, but every item has a body of its own: as many answered bodies as results.

    A provider that died may have sent an answer it did not get to write down.
    """
    answered = {entry["digest"] for entry in ledger if entry["outcome"] == "succeeded"}
    forgetful = any(step.outage for step in schedule.steps)
    if len(answered) == len(results) or (forgetful and len(answered) < len(results)):
        return []
    return [Problem("lost result", f"{len(answered)} bodies were answered, {len(results)} results are there")]


def item_of(store: Store, run_id: int, custom_id: str) -> str | None:
    """The item behind a custom id."""
    from batchctl.core.ids import Generated, resolve

    row = store.runs.by_id(run_id)
    assert row is not None
    match resolve(custom_id, row.token):
        case Generated(seq=seq):
            return store.items.by_seqs(run_id, [seq])[seq].id
        case _:
            return custom_id


def _answers(schedule: Schedule, results: list[dict[str, Any]]) -> list[Problem]:
    """Each answer belongs to its item."""
    odd = {rule["prompt_contains"] for rule in schedule.faults["items"] if rule["kind"] in ODD_KINDS}
    found = []
    for line in results:
        text = f"text of item {line['id'].removeprefix(schedule.prefix)}."
        if any(part in text for part in odd):
            continue
        if line["text"] != answer(f"Answer this: {text}"):
            found.append(Problem("answer", f"{line['id']} has {line['text']!r}"))
    return found


def _failures(schedule: Schedule, errors: list[dict[str, Any]]) -> list[Problem]:
    """An item fails for good only for a permanent error, or after its resubmissions (sync lane: its attempts)."""
    final = [rule["prompt_contains"] for rule in schedule.faults["items"] if rule["kind"] in FINAL_KINDS]
    return [
        Problem("failed too early", json.dumps(line))
        for line in errors
        if (line["attempts"] < MAX_ATTEMPTS if schedule.lane == "sync" else line["round"] < LAST_ROUND)
        and not any(part in f"text of item {line['id'].removeprefix(schedule.prefix)}." for part in final)
    ]


def _secrets(folder: Path) -> list[Problem]:
    """The key is in no file, and no file can be read by others."""
    found = []
    for path in folder.rglob("*"):
        if not path.is_file() or "simulator" in path.parts:
            continue
        if KEY.encode() in path.read_bytes():
            found.append(Problem("secret", f"{path.relative_to(folder)} holds the key"))
        if path.stat().st_mode & 0o077 and path.name not in MADE_HERE:
            found.append(Problem("private", f"{path.relative_to(folder)} has mode {path.stat().st_mode:o}"))
    return found
