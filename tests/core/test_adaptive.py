"""Following the account's limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.adaptive import CALM, FLOOR, LOWER, Budget, Pace, pause_after


def test_a_refusal_lowers_the_pace_and_it_recovers_slowly() -> None:
    """A 429 is evidence that the limits are set wrong, not something to retry through."""
    pace = Pace()
    assert pace.at(100) == 1.0
    pace.lower(100)
    assert pace.at(100) == pytest.approx(LOWER)
    assert LOWER < pace.at(200) < 0.81
    assert pace.at(500) == 1.0


def test_refusals_of_one_moment_count_once() -> None:
    """What was in flight together is refused together."""
    pace = Pace()
    for late in range(20):
        pace.lower(100 + late * CALM / 20)
    assert pace.at(100) == pytest.approx(LOWER)


def test_the_pace_never_stops() -> None:
    """After any number of refusals the wait is bounded, and a healthy server gets the pace back (field report 127)."""
    pace = Pace()
    for number in range(20):
        pace.lower(number * 2 * CALM)
    last = 38 * CALM
    assert FLOOR <= pace.at(last) < FLOOR + 0.02
    assert pace.at(last + 1000) == 1.0


def test_limits_are_learned_and_ours_is_a_share() -> None:
    """What answers say is followed as it changes; what options say wins; the share applies to both."""
    budget = Budget({"requests": 1000}, share=0.5)
    assert budget.limits() == {"requests": 500}
    assert budget.learn(0, {"requests": 9999, "tokens": 80_000}, {})
    assert budget.limits() == {"requests": 500, "tokens": 40_000}
    assert not budget.learn(1, {"tokens": 80_000}, {})
    assert budget.learn(2, {"tokens": 40_001}, {})
    assert budget.limits()["tokens"] == 20_000
    assert not budget.learn(3, {"tokens": 0}, {})
    assert Budget({"requests": 1}, share=0.1).limits() == {"requests": 1}


@pytest.mark.parametrize(("left", "pace"), [(60_000, 1.0), (50_000, 1.0), (45_000, 0.9), (0, LOWER)])
def test_the_part_that_is_not_ours_stays_free(left: int, pace: float) -> None:
    """When others use the account, we give way by what is lacking."""
    budget = Budget({"tokens": 100_000}, share=0.5)
    budget.learn(10, {}, {"tokens": left, "unknown": 0})
    assert budget.pace.at(10) == pytest.approx(pace)


def test_the_whole_account_keeps_nothing_free() -> None:
    """With a share of one an empty budget is no reason to slow down."""
    budget = Budget({"tokens": 100}, share=1.0)
    budget.learn(10, {}, {"tokens": 0})
    assert budget.pace.at(10) == 1.0


@given(st.none() | st.floats(0, 3600), st.integers(1, 10**6), st.floats(0, 1))
def test_pauses_are_never_shorter_than_told_and_bounded(told: float | None, refusals: int, random: float) -> None:
    """Retry-After is obeyed, jitter is only added, and without it no pause is silly (field reports 127, 139, 142)."""
    pause = pause_after(told, refusals, random)
    assert pause >= (told or 0)
    assert pause_after(1e9, refusals, random) == pause_after(3600, refusals, random)
    assert pause <= (33 if told is None else told * 1.1 + 0.5)
    assert pause == pytest.approx(
        pause_after(told, refusals, 0.0)
        + random * (pause_after(told, refusals, 1.0) - pause_after(told, refusals, 0.0))
    )


def test_pauses_grow_without_a_word_from_the_provider() -> None:
    """Each moment of refusal doubles the pause (field report 141)."""
    assert [pause_after(None, count, 0.0) for count in (1, 2, 3, 9)] == [1, 2, 4, 30]
