"""Schedules: what happens in one run of the campaign, made from a seed and shrunk when it shows a violation."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.torture.blows import POINTS, Blow
from tests.torture.shapes import odd_shapes

FLOWING = 36_000.0  # simulated seconds a second, where commands wait by themselves
DAY = 86_400.0
LAST_ROUND = 2
CONCURRENCY = 3  # calls in flight in the sync lane, which are all that a kill may cost

PREFIXES = ("bctl-", "bctl-00000000-", "a longer id than any provider takes, of more than 64 characters, ", "ü ")

FINAL_KINDS = ("invalid_request", "context_too_long")
PASSING_KINDS = ("api_error", "overloaded", "rate_limit", "status_0", "expired", "missing")
ODD_KINDS = ("refusal", "truncated", "null_content", "empty", "not_json", "line_separators")


@dataclass(frozen=True)
class Step:
    """One command.

    Args:
        verb: `fanout`, `submit`, `run`, `poll`, `wait`, `resubmit`, `cancel` or `doctor` (with --repair);
            or no command: `copy` makes a backup of the state file, `restore` puts the last one back.
        advance: simulated seconds that pass before it.
        shift: seconds by which this machine's clock is wrong while it runs.
        outage: the provider dies so many seconds after the start and is back after as many more.
        twin: the same command is started once more beside it, as two cron jobs of the same second are.
    """

    verb: str
    advance: float = 0.0
    shift: float = 0.0
    blow: Blow | None = None
    outage: tuple[float, float] | None = None
    twin: bool = False

    def __str__(self) -> str:
        parts = [self.verb]
        if self.advance:
            parts.append(f"{self.advance:.0f} s later")
        if self.shift:
            parts.append(f"clock off by {self.shift:.0f} s")
        if self.blow:
            parts.append(str(self.blow))
        if self.outage:
            parts.append("provider gone after {:.2f} s for {:.2f} s".format(*self.outage))
        if self.twin:
            parts.append("twice at once")
        return ", ".join(parts)


@dataclass(frozen=True)
class Schedule:
    """One run from its first command to the point where it is left alone and must settle.

    Args:
        strangers: batches of equal size that somebody else sends in the same account, by step.
        rival: one more such batch before the first step, of the very same items under another prompt, as a second state
            file sends it.
        prefix: of the items' ids, before their number; some are none that a provider takes.
        link: every other command, and the second of two at once, names the state file by a symbolic link.
        wal: false where the file system knows no shared memory, so that the database keeps a rollback journal.
    """

    seed: int
    provider: str
    items: int
    options: tuple[str, ...]
    speed: float
    faults: dict[str, list[dict[str, Any]]]
    steps: tuple[Step, ...]
    strangers: tuple[int, ...] = ()
    limits: dict[str, Any] = field(default_factory=dict)
    lane: str = "batch"
    wal: bool = True
    rival: bool = False
    link: bool = False
    prefix: str = "i"

    def describe(self) -> str:
        """The schedule as a person reads it."""
        lines = [f"seed {self.seed}: {self.lane} lane, {self.provider}, {self.items} items"]
        lines.append(f"  {' '.join(self.options)} {self.limits}{'' if self.wal else ' without WAL'}")
        lines += [f"  fault {section}: {rule}" for section, rules in self.faults.items() for rule in rules]
        lines += ["  a rival's batch of the same items before all"] * self.rival
        lines += [f"  ids begin with {self.prefix!r}"] * (self.prefix != "i")
        lines += ["  by a link to the state file, too"] * self.link
        lines += [f"  stranger before step {number}" for number in self.strangers]
        lines += [f"  {number}. {step}" for number, step in enumerate(self.steps)]
        return "\n".join(lines)

    def smaller(self) -> Iterator[Schedule]:
        """Schedules with one thing less, the largest pieces first."""
        for number in range(1, len(self.steps)):
            yield replace(self, steps=self.steps[:number] + self.steps[number + 1 :])
        for section, rules in self.faults.items():
            for number in range(len(rules)):
                kept = rules[:number] + rules[number + 1 :]
                yield replace(self, faults={**self.faults, section: kept})
        for calm in ({"strangers": ()}, {"rival": False}, {"link": False}, {"wal": True}, {"prefix": "i"}):
            less = replace(self, **calm)
            if less != self:
                yield less
        for number, step in enumerate(self.steps):
            for calmer in ({"blow": None}, {"shift": 0.0}, {"outage": None}, {"twin": False}):
                quiet = replace(step, **calmer)
                if quiet != step:
                    yield replace(self, steps=(*self.steps[:number], quiet, *self.steps[number + 1 :]))
        if self.items > 1:
            yield replace(self, items=self.items // 2)


def make_schedule(seed: int) -> Schedule:
    """The schedule of a seed; the same for ever. Every fifth is of the sync lane."""
    chance = random.Random(seed)
    if seed % 5 == 0:
        return _sync_schedule(seed, chance)
    schedule = _batch_schedule(seed, chance)
    calls = [*schedule.faults["calls"], *odd_shapes(chance, schedule.provider)]
    if sum(step.outage is not None for step in schedule.steps) > 1:
        # a provider that was started anew counts calls anew, and a line that three downloads lack counts as missing
        calls = [rule for rule in calls if rule["action"] not in ("lines", "edit")]
    return replace(
        schedule,
        faults={**schedule.faults, "calls": calls},
        rival=chance.random() < 0.25,
        link=chance.random() < 0.1,
        prefix=chance.choice(PREFIXES) if chance.random() < 0.3 else "i",
    )


def _batch_schedule(seed: int, chance: random.Random) -> Schedule:
    provider = chance.choice(("anthropic", "openai"))
    speed = chance.choice((0.0, FLOWING))
    items = chance.randint(1, 12)
    options = ["--max-requests", str(chance.choice((1, 2, 3, 5, 100))), "--deadline", "3h"]
    if chance.random() < 0.2:
        options.append("--tag-ids")
    if chance.random() < 0.2:
        options += ["--max-queued-requests", str(chance.randint(5, 8))]
    limits: dict[str, Any] = {"seed": seed}
    if chance.random() < 0.1:
        limits[f"{provider}_max_requests"] = chance.randint(1, 4)
    return Schedule(
        seed=seed,
        provider=provider,
        items=items,
        options=tuple(options),
        speed=speed,
        faults=_faults(chance, provider, items, speed),
        steps=tuple(_with_restore(chance, list(_steps(chance, speed)))),
        strangers=(chance.randint(1, 4),) if chance.random() < 0.1 else (),
        limits=limits,
        wal=chance.random() > 0.15,
    )


def _sync_schedule(seed: int, chance: random.Random) -> Schedule:
    provider = chance.choice(("anthropic", "openai"))
    items = chance.randint(1, 30)
    endpoint = {"anthropic": "anthropic.messages", "openai": "openai.chat.completions"}[provider]
    actions: list[dict[str, Any]] = [
        {"action": "drop", "when": chance.choice(("before", "after"))},
        {"action": "html", "when": "before"},
        {"action": "status", "status": chance.choice((429, 500, 503, 529))},
    ]
    kinds = ("api_error", "overloaded", "rate_limit")
    return Schedule(
        seed=seed,
        provider=provider,
        items=items,
        options=("--concurrency", str(CONCURRENCY), "--timeout", "5s"),
        speed=FLOWING,
        faults={
            "calls": [
                {"endpoint": endpoint, "nth": chance.randint(1, items), **chance.choice(actions)}
                for _ in range(chance.choice((0, 1, 2)))
            ],
            "items": [
                {
                    "prompt_contains": f"item {chance.randint(1, items)}.",
                    **chance.choice(
                        (
                            {"kind": chance.choice(FINAL_KINDS)},
                            {"kind": chance.choice(ODD_KINDS)},
                            {"kind": chance.choice(kinds), "first_n_attempts": chance.randint(1, 2)},
                        )
                    ),
                }
                for _ in range(chance.choice((0, 1)))
            ],
            "batches": [],
            "files": [],
        },
        steps=tuple(
            Step("fanout", blow=_blow(chance, 0.9), outage=_outage(chance), twin=chance.random() < 0.1)
            for _ in range(chance.randint(1, 4))
        ),
        limits={"seed": seed, "latency_seconds": chance.choice((0.0, 300.0))},
        lane="sync",
        wal=chance.random() > 0.15,
    )


def _steps(chance: random.Random, speed: float) -> Iterator[Step]:
    first = ("run", "submit") if speed else ("submit",)
    later: tuple[str, ...] = ("run", "wait", "poll", "resubmit") if speed else ("poll", "poll", "submit", "resubmit")
    later = (*later, "doctor") if chance.random() < 0.3 else later
    yield Step(chance.choice(first), blow=_blow(chance, 0.9), outage=_outage(chance), twin=chance.random() < 0.1)
    for _ in range(chance.randint(1, 6)):
        advance = 0.0 if speed else chance.choice((0.0, 5.0, 70.0, 3600.0, 4 * 3600.0))
        blow, outage, twin = _blow(chance, 0.7), _outage(chance), chance.random() < 0.1
        yield Step(chance.choice(later), advance, _shift(chance), blow, outage, twin)
    if chance.random() < 0.05:
        yield Step("cancel", 0.0, 0.0, _blow(chance, 0.5))


def _with_restore(chance: random.Random, steps: list[Step]) -> list[Step]:
    """Now and then a person puts an older copy of the state file back."""
    if chance.random() < 0.08:
        copied = chance.randint(1, len(steps))
        steps.insert(copied, Step("copy"))
        steps.insert(chance.randint(copied + 1, len(steps)), Step("restore"))
    return steps


def _shift(chance: random.Random) -> float:
    return chance.choice((-DAY, -3600.0, 3600.0, 3 * DAY)) if chance.random() < 0.08 else 0.0


def _outage(chance: random.Random) -> tuple[float, float] | None:
    return (chance.random() * 0.3, chance.choice((0.0, 0.3, 1.5))) if chance.random() < 0.06 else None


def _blow(chance: random.Random, likely: float) -> Blow | None:
    if chance.random() > likely:
        return None
    if chance.random() < 0.3:
        return Blow("time", seconds=chance.choice((0.05, 0.15, 0.4)) * chance.random() * 2)
    if chance.random() < 0.1:
        return Blow("room", int(2 ** (8 + 11 * chance.random())), "full")
    point = chance.choice((*POINTS, "any", "any"))
    nth = int(2 ** (chance.random() * (6.5 if point == "any" else 4)))
    torn = ("before", "after", "torn", "full")
    hows = {"write": torn, "sqlite": torn, "fsync": ("before", "after", "full")}
    return Blow(point, nth, chance.choice(hows.get(point, ("before", "after"))))


def _faults(chance: random.Random, provider: str, items: int, speed: float) -> dict[str, list[dict[str, Any]]]:
    return {
        "calls": [_call_fault(chance, provider) for _ in range(chance.choice((0, 0, 1, 1, 2, 3)))],
        "items": [_item_fault(chance, items) for _ in range(chance.choice((0, 0, 1, 2)))],
        "batches": [_batch_fault(chance, provider, speed) for _ in range(chance.choice((0, 0, 1)))],
        "files": [{"nth": chance.randint(1, 3), "not_found_creates": chance.randint(1, 2)}]
        if provider == "openai" and chance.random() < 0.15
        else [],
    }


def _call_fault(chance: random.Random, provider: str) -> dict[str, Any]:
    results = "anthropic.batches.results" if provider == "anthropic" else "openai.files.content"
    calls = ["batches.create", "batches.create", "batches.retrieve", "batches.list", "batches.cancel"]
    if provider == "openai":
        calls += ["files.upload", "files.list"]
    endpoint = chance.choice([*(f"{provider}.{call}" for call in calls), results])
    which = {"endpoint": endpoint, "nth": chance.randint(1, 4)}
    when = {"when": chance.choice(("before", "after"))}
    actions: list[dict[str, Any]] = [
        {"action": "drop", **when},
        {"action": "drop", **when},
        {"action": "html", **when},
        {"action": "status", "status": chance.choice((429, 500, 503, 529)), **when},
        {"action": "hang", "seconds": 5, **when},
    ]
    if endpoint.endswith(("retrieve", "cancel")):
        actions.append({"action": "status", "status": 404})
    if endpoint == results:
        actions += [
            {"action": "truncate", "bytes": chance.randint(1, 800), "content_length": chance.random() < 0.5},
            {"action": "lines", "duplicate": chance.randint(0, 3), "unknown": 1, "blank": 1, "no_id": 1, "junk": 1},
            {"action": "lines", "drop": 1, "crlf": True, "line_separators": True},
        ]
    action = chance.choice(actions)
    if action.get("status") == 429:
        action["when"] = "before"
    return which | action


def _item_fault(chance: random.Random, items: int) -> dict[str, Any]:
    which: dict[str, Any] = {"prompt_contains": f"item {chance.randint(1, items)}."}
    kind = chance.choice((*FINAL_KINDS, *PASSING_KINDS, *PASSING_KINDS, *ODD_KINDS))
    if kind in PASSING_KINDS and chance.random() < 0.7:
        which["first_n_attempts"] = chance.randint(1, 2)
    return which | {"kind": kind}


def _batch_fault(chance: random.Random, provider: str, speed: float) -> dict[str, Any]:
    which: dict[str, Any] = {"nth": chance.randint(1, 3)}
    effects: list[dict[str, Any]] = [
        {"stuck": chance.random()},
        {"stuck": True, "cancel_seconds": 300},
        {"expire": chance.random(), "expire_after": 3600},
        {"retrieve_404_calls": chance.randint(1, 3)},
        {"status": "thinking"},
        {"duration": 5 * 3600, "cancel_finishes": True},
    ]
    if speed:
        effects += [{"list_lag_seconds": 0.05 * speed}] * 2
    if provider == "openai":
        effects += [
            {"fail": "token_limit_exceeded"},
            {"error_file_id": chance.choice(("", "missing"))},
            {"counts": "all_completed"},
        ]
    return which | chance.choice(effects)
