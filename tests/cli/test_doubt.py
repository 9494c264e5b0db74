"""Creates in doubt that settle by themselves: wrong clocks, batches of strangers, batches that were given up."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from batchctl.core.errors import StillOpenError
from batchctl.runs import verbs
from batchctl.runs.context import Context, Stop, utc_now
from tests.cli.passes import LATER, events, pass_until_quiet, poll_at
from tests.conftest import MODELS, Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
DAY = 86_400.0
HOUR = 3600.0
STUCK: dict[str, Any] = {"nth": 1, "stuck": 0.5, "ignore_deadline": True, "cancel_never_ends": True}


def later_lost(provider: str, when: str, **more: Any) -> dict[str, Any]:
    """The first create is refused for now, the second one's answer is lost."""
    rule = {"endpoint": f"{provider}.batches.create"}
    refused = {**rule, "nth": 1, "action": "status", "status": 429}
    return {"calls": [refused, {**rule, "nth": 2, "action": "drop", "when": when}], **more}


def looks(desk: Desk) -> int:
    """How often batches were asked for."""
    return int(desk.simulator.stats()["calls"].get(f"{desk.provider}.batches.retrieve", 0))


def states(desk: Desk) -> list[str]:
    """The states of the run's batches."""
    return [row["state"] for row in desk("batches", "r", "--json").rows]


@PROVIDERS
def test_a_clock_that_ran_ahead_hides_no_running_batch(make_desk: MakeDesk, provider: str) -> None:
    """Ten minutes ahead at the intent and right again since: what still runs is never taken for absent."""
    running = {"batches": [{"duration": 3 * HOUR}]}
    desk = make_desk(provider, later_lost(provider, "after", **running))
    desk.start("submit", desk.items(3))
    poll_at(desk, 1 / 6)
    assert states(desk) == ["submitting"]
    desk.simulator.advance(HOUR / 3)
    codes = [poll_at(desk, 1 / 3 + number / 100) for number in range(5)]
    assert codes == [0] * 5
    assert desk.creates() == 2
    desk.simulator.advance(4 * HOUR)
    poll_at(desk, 5)
    poll_at(desk, 6)
    assert desk.balanced()["counts"]["succeeded"] == 3
    assert desk.creates() == 2


@PROVIDERS
def test_a_clock_that_went_back_proves_no_absence(make_desk: MakeDesk, provider: str) -> None:
    """Nothing counts as absent before the moment of the intent has come again; then the lists decide."""
    desk = make_desk(provider, later_lost(provider, "before"))
    desk.start("submit", desk.items(3))
    poll_at(desk, 72)
    for _ in range(5):
        ran = desk("poll", code=8)
    assert "the clock here was set back" in events(desk, "batch.unknown")[0]["text"]
    assert "adopt r --absent 1" in ran.err
    assert desk.creates() == 2
    assert [poll_at(desk, 73 + number) for number in range(4)] == [8, 8, 0, 0]
    assert desk.creates() == 3
    desk.simulator.advance(LATER)
    poll_at(desk, 80)
    assert desk.balanced()["counts"]["succeeded"] == 3


def stranger(desk: Desk, requests: int) -> None:
    """Somebody else creates a batch in the same workspace."""
    params = {"model": MODELS["anthropic"], "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
    body = {"requests": [{"custom_id": f"x{number}", "params": params} for number in range(requests)]}
    request = urllib.request.Request(
        f"{desk.simulator.url}/v1/messages/batches",
        json.dumps(body).encode(),
        {"x-api-key": "other", "anthropic-version": "2023-06-01", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        answer.read()


def test_a_wrong_guess_settles_by_itself(make_desk: MakeDesk) -> None:
    """A batch of the right size and time that turns out to be somebody else's: the lists then show ours is absent."""
    lost = {"endpoint": "anthropic.batches.create", "nth": 1, "action": "drop", "when": "before"}
    desk = make_desk(faults={"calls": [lost]})
    desk.start("submit", desk.items(3))
    stranger(desk, 3)
    desk("poll")
    assert states(desk) == ["in_progress"]
    desk.simulator.advance(LATER)
    assert "adopt r --absent 1" in desk("poll", code=8).err
    assert len(events(desk, "batch.disowned")) == 1
    assert [poll_at(desk, 1.0 + number) for number in range(3)] == [8, 8, 0]
    assert desk.creates() == 3
    desk.simulator.advance(LATER)
    poll_at(desk, 6)
    assert desk.balanced()["counts"]["succeeded"] == 3
    assert desk.status()["needs"] is None


def given_up(desk: Desk) -> None:
    """A run whose first batch does not end, was given up, and whose items were answered by the second."""
    desk.start("submit", desk.items(2), "--deadline", "1h")
    pass_until_quiet(desk, passes=2)
    desk("resubmit", "r", "--abandon", "1")
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.status()["state"] == "done"
    assert states(desk) == ["abandoned", "collected"]


@PROVIDERS
def test_a_batch_that_never_ends_is_let_go(make_desk: MakeDesk, provider: str) -> None:
    """Late answers are taken as long as a provider keeps any; then it is said, and nobody asks again."""
    desk = make_desk(provider, {"batches": [STUCK]})
    given_up(desk)
    before = looks(desk)
    desk.simulator.advance(20 * DAY)
    desk("poll")
    assert looks(desk) == before + 1
    desk.simulator.advance(11 * DAY)
    desk("poll")
    assert len(events(desk, "batch.let_go")) == 1
    desk("poll")
    desk("poll", "r")
    assert looks(desk) == before + 2
    assert desk.status()["state"] == "done"


def test_a_given_up_batch_nobody_knows_is_let_go(make_desk: MakeDesk) -> None:
    """A 404 says nothing at first; past the deadline and ten times in a row it does."""
    desk = make_desk(faults={"batches": [STUCK]})
    given_up(desk)
    gone = {"endpoint": "anthropic.batches.retrieve", "action": "status", "status": 404}
    desk.simulator.set_faults({"calls": [gone]})
    for _ in range(9):
        desk("poll")
    assert events(desk, "batch.let_go") == []
    poll_at(desk, 48)
    assert len(events(desk, "batch.let_go")) == 1
    before = looks(desk)
    desk("poll")
    assert looks(desk) == before


class Waits(Stop):
    """Time that passes only where somebody waits."""

    passed = 0.0

    async def wait(self, seconds: float) -> None:
        """Let it pass."""
        self.passed += seconds


@pytest.mark.slow
@pytest.mark.parametrize("jump", [-24, 24])
def test_a_wait_ends_by_a_clock_nobody_sets(make_desk: MakeDesk, jump: float) -> None:
    """`--wait-limit` counts what has passed: setting the wall clock adds nothing and ends nothing."""
    desk = make_desk()
    desk.start("submit", desk.items(1))
    waits = Waits()
    ctx = Context(
        desk.folder / "state.db",
        lambda _: None,
        stop=waits,
        now=lambda: utc_now() + timedelta(hours=jump if waits.passed else 0, seconds=waits.passed),
        monotonic=lambda: waits.passed,
    )
    with pytest.raises(StillOpenError):
        asyncio.run(verbs.poll(ctx, ["r"], wait=True, resubmit=False, limit=5.0))
    assert waits.passed == pytest.approx(5.0)
