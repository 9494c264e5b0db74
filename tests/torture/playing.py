"""Plays one schedule in a folder of its own, then leaves the run alone until it is settled, and checks it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sqlite3
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from batchctl.core.errors import BatchctlError
from batchctl.core.model import BatchState, RunState
from batchctl.simulator import SimulatorConfig
from batchctl.state.rows import RunRow
from batchctl.state.store import Store
from tests.torture.checking import Problem, check, item_of
from tests.torture.processes import HUNG, KILLED, SimulatorProcess, command
from tests.torture.schedules import Schedule, Step

MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-5-mini"}
PROMPT = "Answer this: {{ text }}\n"
QUIET_PASSES = 40
PATIENCE = 10  # passes of a quick machine may all come within one pause of real time: one in so many waits
UNREAD = "lists could not be read"  # on a slow machine the short timeouts here can be too short
LIVE = frozenset(BatchState) - {
    BatchState.COLLECTED,
    BatchState.REJECTED,
    BatchState.WITHDRAWN,
    BatchState.ABANDONED,
}
EXPECTED = frozenset({0, 1, 3, 4, 5, 6, 7, 8, KILLED})


@dataclass
class Played:
    """What became of one schedule."""

    schedule: Schedule
    problems: list[Problem] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    log: str = ""


def play(schedule: Schedule, *, keep: Path | None = None) -> Played:
    """Play a schedule; `keep` is a folder that stays afterwards."""
    folder = keep or Path(tempfile.mkdtemp(prefix="torture-"))
    played = Played(schedule)
    output = folder / "output.txt"
    config = SimulatorConfig(speed=schedule.speed, faults=schedule.faults, **schedule.limits)
    if any(step.outage for step in schedule.steps):
        config = replace(config, data=folder / "simulator")
    simulator = SimulatorProcess(config, output)
    try:
        _Play(schedule, played, folder, simulator, output).all()
    finally:
        simulator.stop()
        if output.exists():
            played.log = output.read_text("utf-8", "replace")
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    return played


class _Play:
    def __init__(
        self, schedule: Schedule, played: Played, folder: Path, simulator: SimulatorProcess, output: Path
    ) -> None:
        self._schedule = schedule
        self._played = played
        self._folder = folder
        self._simulator = simulator
        self._output = output
        self._said = ""  # by the last command
        self._others: set[str] = set()  # batches of a rival
        self._named = 0  # how often a command named the state file
        self._items = folder / "items.jsonl"
        self._items.write_text(
            "".join(
                json.dumps({"id": f"{schedule.prefix}{number}", "text": f"text of item {number}."}) + "\n"
                for number in range(1, schedule.items + 1)
            ),
            "utf-8",
        )
        (folder / "prompt.txt").write_text(PROMPT, "utf-8")
        if schedule.link:
            (folder / "linked").mkdir()
            (folder / "linked" / "by.db").symlink_to(folder / "state.db")

    def all(self) -> None:
        """Every step, the quiet end, the checks."""
        if self._schedule.rival:
            self._send_rival()
        for number, step in enumerate(self._schedule.steps):
            if number in self._schedule.strangers:
                self._send_strangers()
            self._take(step)
            if self._played.problems:
                return
        self._simulator_said()
        self._simulator.set_faults({})
        if not self._settle():
            return
        self._played.problems += check(
            self._schedule, self._folder, self._ledger(), self._simulator, kills=self._played.counts["kills"]
        )
        if not self._played.problems and self._take(Step("doctor")) != 0:
            found = [line for line in self._said.split("\n") if line.startswith("run r:") and UNREAD not in line]
            if found:
                self._problem("doctor", f"finds something wrong in a settled run: {found}")

    def _take(self, step: Step) -> int:
        if step.advance:
            self._simulator.advance(step.advance)
        self._note(f"--- {step}")
        if step.verb in ("copy", "restore"):
            self._older(step.verb)
            return 0
        before = self._output.stat().st_size
        code = command(
            self._arguments(step.verb),
            self._simulator.env,
            self._output,
            blow=step.blow,
            shift=step.shift,
            wal=self._schedule.wal,
            meanwhile=partial(self._meanwhile, step),
        )
        self._said = self._output.read_bytes()[before:].decode("utf-8", "replace")
        self._note(f"--- exit {code}")
        self._played.counts["commands"] += 1
        self._played.counts["kills"] += code == KILLED
        if "Traceback" in self._said:
            self._problem("traceback", f"{step} showed a traceback")
        if code == HUNG:
            self._problem("hung", f"{step} did not end")
        elif code not in EXPECTED and not (code == 2 and step.verb not in ("submit", "run", "fanout")):
            self._problem("exit", f"{step} ended with {code}")
        if code == KILLED:
            self._read()
        return code

    def _read(self) -> None:
        """Who only reads can do so whatever a killed process left, and meets a missing state file at worst."""
        arguments = ["--state", str(self._folder / "state.db"), "status"]
        code = command(arguments, {}, self._output, wal=self._schedule.wal)
        if code not in (0, 2):
            self._problem("reading", f"status ended with {code}")

    def _older(self, verb: str) -> None:
        """Back the state file up, or put the backup in its place; everything else stays as it is."""
        state, older = self._folder / "state.db", self._folder / "older.db"
        if verb == "copy" and state.exists() and self._is_planned():
            with closing(sqlite3.connect(state)) as source, closing(sqlite3.connect(older)) as target:
                source.backup(target)
            older.chmod(0o600)
        elif verb == "restore" and older.exists():
            for side in ("", "-wal", "-shm"):
                state.with_name(state.name + side).unlink(missing_ok=True)
            shutil.copy(older, state)
            self._played.counts["older copies"] += 1

    def _is_planned(self) -> bool:
        try:
            run, _ = self._status()
        except BatchctlError:  # its start died before there was anything in it
            return False
        return run is not None and run.state is not RunState.PLANNING

    def _meanwhile(self, step: Step) -> None:
        if step.twin:
            code = command(self._arguments(step.verb), self._simulator.env, self._output, wal=self._schedule.wal)
            self._note(f"--- its twin: exit {code}")
            self._played.counts["twins"] += 1
        if step.outage is not None:
            self._outage(*step.outage)

    def _outage(self, after: float, down: float) -> None:
        time.sleep(after)
        self._simulator_said()
        self._simulator.restart(down)
        self._played.counts["outages"] += 1

    def _state(self) -> Path:
        """The state file as this command names it."""
        self._named += 1
        by_link = self._schedule.link and self._named % 2 == 0 and (self._folder / "state.db").exists()
        return self._folder / ("linked/by.db" if by_link else "state.db")

    def _arguments(self, verb: str) -> list[str]:
        schedule = self._schedule
        state = ["--state", str(self._state()), "--no-progress"]
        state += ["--log-file", str(self._folder / "log.jsonl"), "--log-format", "json"]
        fast = ["--interval", "0.05s", "--settle-after", "1.2s"]  # longer than a call may take, as by default
        match verb:
            case "submit" | "run" | "fanout":
                return [
                    *(*state, verb, str(self._items), "--provider", schedule.provider, "--name", "r"),
                    *("--model", MODELS[schedule.provider], "--prompt", str(self._folder / "prompt.txt")),
                    *("--out", str(self._folder / "out"), *(() if verb == "fanout" else fast), *schedule.options),
                ]
            case "poll":
                return [*state, "poll", "--resubmit"]
            case "doctor":
                return [*state, "doctor", "--repair"]
            case "wait":
                return [*state, "poll", "--resubmit", "--wait-limit", "3s"]
            case _:
                return [*state, verb, "r"]

    def _settle(self) -> bool:
        """Leave the run alone: no kills, no faults, time passes; true when everything has its outcome."""
        for number in range(QUIET_PASSES):
            verb = "wait" if number % PATIENCE == PATIENCE - 1 else "submit" if number == 0 else "poll"
            verb = "fanout" if self._schedule.lane == "sync" else verb
            code = self._take(Step(verb, advance=4 * 3600.0 if number else 0.0))
            if self._played.problems:
                return False
            if code == 8:
                self._settle_unknown()
            elif code in (1, 7):
                self._take(Step("doctor"))
            run, live = self._status()
            if run is None:
                continue
            self._give_up_gone(run)
            if run.state is RunState.STOPPED and self._schedule.lane == "batch":
                self._take(Step("resubmit"))
            elif not run.open and not live and run.state in (RunState.DONE, RunState.CANCELED):
                return True
        self._problem(
            "never settled",
            f"after {QUIET_PASSES} quiet passes: {run and (run.state, run.open, run.needs)}, {live} batches",
        )
        return False

    def _status(self) -> tuple[RunRow | None, int]:
        """The run's row, and how many batches are on their way."""
        state = self._folder / "state.db"
        with Store.open(state, readonly=True) as store:
            run = store.runs.get("r")
            return run, 0 if run is None else len(store.batches.in_state(run.id, *LIVE))

    def _settle_unknown(self) -> None:
        """What a person does: look at the provider, and say which batch it is, or that there is none."""
        sent: dict[str, set[str]] = {}
        for entry in self._ledger():
            sent.setdefault(entry["batch_id"], set()).add(entry["custom_id"])
        state = self._folder / "state.db"
        with Store.open(state, readonly=True) as store:
            run = store.runs.get("r")
            assert run is not None
            unknown = store.batches.in_state(run.id, BatchState.UNKNOWN)
            known = {batch.batch_id for batch in store.batches.all(run.id)}
            members = {b.number: {m.id for m in store.items.members(run.id, b.number)} for b in unknown}
            items = {batch_id: {item_of(store, run.id, id_) for id_ in ids} for batch_id, ids in sent.items()}
        for batch in unknown:
            self._played.counts["unknown creates"] += 1
            found = [
                batch_id for batch_id, ids in items.items() if batch_id not in known and ids == members[batch.number]
            ]
            chosen = [found[0], "--batch", str(batch.number)] if found else ["--absent", str(batch.number)]
            self._by_hand(["adopt", "r", *chosen])

    def _give_up_gone(self, run: RunRow) -> None:
        """What a person does about answers that the provider counts and does not have: pay again, knowingly."""
        found = re.search(r"`batchctl (resubmit r --abandon \d+)`", run.needs or "")
        if found is None:
            return
        self._played.counts["given up"] += 1
        self._by_hand(found[1].split())

    def _by_hand(self, arguments: list[str]) -> None:
        self._note(f"--- {' '.join(arguments)}")
        code = command(["--state", str(self._folder / "state.db"), *arguments], self._simulator.env, self._output)
        self._note(f"--- exit {code}")

    def _ledger(self) -> list[dict[str, Any]]:
        """What was accepted of ours."""
        return [
            entry
            for entry in self._simulator.ledger()
            if not str(entry["custom_id"]).startswith("stranger") and entry["batch_id"] not in self._others
        ]

    def _send_rival(self) -> None:
        """A second state file sends the same items under another prompt, in batches of the size of ours."""
        if self._schedule.provider != "anthropic":
            return
        self._played.counts["rivals"] += 1
        size = int(self._schedule.options[1])
        ids = [f"i{number}" for number in range(1, self._schedule.items + 1)]  # ours, where a provider takes them
        for start in range(0, len(ids), size):
            self._create({id_: f"something else about {id_}" for id_ in ids[start : start + size]})
        self._others = {entry["batch_id"] for entry in self._simulator.ledger()}

    def _send_strangers(self) -> None:
        """Somebody else sends batches of the sizes of ours, in the same account."""
        if self._schedule.provider != "anthropic":
            return
        self._played.counts["strangers"] += 1
        most = int(self._schedule.limits.get("anthropic_max_requests", self._schedule.items))
        for size in {int(self._schedule.options[1]), self._schedule.items}:
            self._create({f"stranger-{n}": f"not ours {n} of {size}" for n in range(min(size, most))})

    def _create(self, prompts: dict[str, str]) -> None:
        """A batch of somebody else's."""
        requests = [
            {
                "custom_id": custom_id,
                "params": {
                    "model": MODELS["anthropic"],
                    "max_tokens": 10,
                    "messages": [{"role": "user", "content": prompt}],
                },
            }
            for custom_id, prompt in prompts.items()
        ]
        with contextlib.suppress(RuntimeError, OSError):  # faults meet strangers too
            self._simulator.ask(
                "POST",
                "/v1/messages/batches",
                {"requests": requests},
                {"x-api-key": "stranger", "anthropic-version": "2023-06-01"},
            )

    def _simulator_said(self) -> None:
        stats = self._simulator.get("stats")
        self._played.counts["faults"] += sum(stats["faults"].values())
        self._played.counts["creates"] += sum(
            count for name, count in stats["calls"].items() if name.endswith("batches.create")
        )

    def _problem(self, kind: str, text: str) -> None:
        self._played.problems.append(Problem(kind, text))

    def _note(self, text: str) -> None:
        with self._output.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
