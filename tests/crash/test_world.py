"""The provider misbehaves while nobody looks: deadlines slept through, limits on looking, downloads that repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.passes import LATER
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
DAY = 86_400.0
RESULTS = {"anthropic": "anthropic.batches.results", "openai": "openai.files.content"}


def passes(desk: Desk, *gaps: float) -> None:
    """One pass after each of these simulated seconds, as cron makes them."""
    for gap in gaps:
        desk.simulator.advance(gap)
        desk("poll", "--resubmit", code=None)


@PROVIDERS
@pytest.mark.parametrize(
    "batch",
    [
        {"expire": 0.5},  # the provider kept its deadline while the machine slept
        {"stuck": 0.5, "ignore_deadline": True},  # it did not, and the batch is canceled now
    ],
    ids=str,
)
def test_a_deadline_that_passed_while_the_machine_slept(
    make_desk: MakeDesk, provider: str, batch: dict[str, Any]
) -> None:
    """Days later the finished answers are taken and only the rest goes again (field reports 82, 84, 96, 97)."""
    desk = make_desk(provider, {"batches": [{"nth": 1, **batch}]})
    desk.start("submit", desk.items(4))
    passes(desk, 3 * DAY, *[LATER] * 6)
    assert desk.balanced()["counts"] == {"planned": 4, "succeeded": 4, "failed": 0, "open": 0}
    assert [row["requests"] for row in desk("batches", "r", "--json").rows] == [4, 2]


@PROVIDERS
def test_limits_on_looking_lose_nothing(make_desk: MakeDesk, provider: str) -> None:
    """429 on looks, lists and downloads is waited out; nothing is sent for it."""
    refused = {"action": "status", "status": 429, "headers": {"retry-after": "1"}}
    calls = [{"endpoint": f"{provider}.batches.retrieve", "nth": [1, 3], **refused},
             {"endpoint": RESULTS[provider], "nth": [1, 2], **refused}]  # fmt: skip
    desk = make_desk(provider, {"calls": calls})
    desk.start("submit", desk.items(3))
    passes(desk, LATER, LATER, LATER, LATER, LATER)
    assert desk.creates() == 1
    assert desk.balanced()["counts"]["succeeded"] == 3


@PROVIDERS
def test_answers_that_come_twice_count_once(make_desk: MakeDesk, provider: str) -> None:
    """A download cut three times, then whole, with lines repeated, foreign, blank and without an id."""
    odd = {"action": "lines", "duplicate": 3, "unknown": 2, "blank": 2, "no_id": 1, "junk": 1}
    cut = [{"endpoint": RESULTS[provider], "nth": nth, "action": "truncate", "bytes": 700} for nth in (1, 2, 3)]
    desk = make_desk(provider, {"calls": [*cut, {"endpoint": RESULTS[provider], "from_nth": 4, **odd}]})
    desk.start("submit", desk.items(5))
    passes(desk, LATER, LATER, LATER, LATER, LATER)
    status = desk.balanced()
    assert status["counts"] == {"planned": 5, "succeeded": 5, "failed": 0, "open": 0}
    assert status["outcomes"]["succeeded"] == 5
    assert desk.creates() == 1
