"""A fixed small campaign for every change; `make torture` runs the large one."""

from __future__ import annotations

import pytest

from tests.torture.blows import Blow
from tests.torture.campaign import run_campaign
from tests.torture.playing import play
from tests.torture.processes import preload
from tests.torture.schedules import DAY, FLOWING, Schedule, Step, make_schedule

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

FIXED = range(1, 61)
NO_FAULTS: dict[str, list[dict[str, object]]] = {"calls": [], "items": [], "batches": [], "files": []}


def test_a_seed_is_a_schedule_for_ever() -> None:
    """What a report names can be played again."""
    assert make_schedule(7) == make_schedule(7)
    assert make_schedule(7) != make_schedule(8)
    assert list(make_schedule(7).smaller())


def test_no_promise_is_broken() -> None:
    """Kills, faults and clock jumps over whole runs on both providers: nothing lost, nothing paid twice."""
    totals = run_campaign(FIXED, workers=1)
    assert totals.schedules == len(FIXED)
    assert totals.counts["kills"] > len(FIXED) // 2
    assert [(bad.schedule.seed, bad.problems) for bad in totals.bad] == []


FOUND = {
    "a full disk under one batch, the next one goes on": Schedule(
        27, "openai", 5, ("--max-requests", "2"), FLOWING, NO_FAULTS,
        (Step("run", blow=Blow("commit", 10, "after")), Step("wait", blow=Blow("write", 1, "full")), Step("poll")),
    ),
    "a tagged batch number with one digit more": Schedule(
        200, "anthropic", 12, ("--max-requests", "1", "--tag-ids"), 0.0,
        {**NO_FAULTS, "items": [{"prompt_contains": "item 12.", "first_n_attempts": 1, "kind": "status_0"}]},
        (Step("submit"),),
    ),
    "a cancel after the last answer": Schedule(
        121, "anthropic", 3, ("--max-requests", "5"), 0.0, NO_FAULTS,
        (Step("submit"), Step("poll", 3600.0), Step("cancel")),
    ),
    "a wait that a wrong clock set": Schedule(
        148, "openai", 4, ("--max-requests", "5"), 0.0, {**NO_FAULTS, "files": [{"nth": 1, "not_found_creates": 2}]},
        (Step("submit", shift=3 * DAY), Step("poll", 5.0)),
    ),
    "an intent dated three days ahead": Schedule(
        10061, "openai", 2, ("--max-requests", "1"), 0.0,
        {**NO_FAULTS, "calls": [{"endpoint": "openai.batches.create", "nth": 2, "action": "status", "status": 529,
                                 "when": "after"}]},
        (Step("submit", shift=3 * DAY), Step("resubmit", 4 * 3600.0), Step("submit")),
    ),
    "a start that died, named by another command": Schedule(
        381, "openai", 4, ("--max-requests", "1"), 0.0, NO_FAULTS,
        (Step("submit", blow=Blow("any", 5, "before")), Step("resubmit"), Step("submit")),
    ),
    "a guessed batch whose only item has no line": Schedule(
        5148, "anthropic", 1, ("--max-requests", "3"), FLOWING,
        {**NO_FAULTS, "items": [{"prompt_contains": "item 1.", "first_n_attempts": 2, "kind": "missing"}]},
        (Step("run", blow=Blow("http", 1, "after")),),
    ),
    "an end that a wrong clock dated three days ahead": Schedule(
        200036, "openai", 2, ("--max-requests", "2"), FLOWING,
        {**NO_FAULTS, "items": [{"prompt_contains": "item 1.", "first_n_attempts": 1, "kind": "missing"}]},
        (Step("run", shift=3 * DAY, blow=Blow("http", 5, "before")),),
    ),
    "calls in flight while the disk is full": Schedule(
        70205, "openai", 28, ("--concurrency", "3", "--timeout", "5s"), FLOWING, NO_FAULTS,
        (Step("fanout", blow=Blow("fsync", 9, "full")),), limits={"latency_seconds": 3000.0}, lane="sync",
    ),
    "an item's two batches under an older copy": Schedule(
        920329, "anthropic", 1, ("--max-requests", "1", "--deadline", "3h"), FLOWING,
        {**NO_FAULTS, "batches": [{"nth": 1, "stuck": True, "cancel_seconds": 300}]},
        (Step("run", blow=Blow("any", 13, "after")), Step("copy"), Step("wait"), Step("restore")),
    ),
    "a deadline's cancel that an older copy does not know": Schedule(
        970054, "openai", 1, ("--max-requests", "5", "--deadline", "3h"), 0.0,
        {**NO_FAULTS, "batches": [{"nth": 1, "stuck": 0.1}]},
        (Step("submit"), Step("copy"), Step("poll", 14_400.0), Step("restore")),
    ),
    "a rival's batch of the same items, taken in by doctor": Schedule(
        900019, "anthropic", 1, ("--max-requests", "1"), FLOWING, NO_FAULTS,
        (Step("submit", blow=Blow("any", 13, "after")), Step("doctor")), rival=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_stays_mended(name: str) -> None:
    """The smallest schedules of violations that campaigns found."""
    preload()
    played = play(FOUND[name])
    assert played.problems == [], played.log
