"""What stops a run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.breaker import Breaker


def test_a_fifth_of_fifty_is_borne_and_more_is_not() -> None:
    """Over 20 % of the last 50 stops, with the commonest reason in one line."""
    breaker = Breaker()
    for number in range(50):
        breaker.record("timeout" if number % 5 == 0 else None)
    assert breaker.reason is None
    breaker.record("overloaded_error")
    assert breaker.reason is None
    breaker.record("timeout")
    assert breaker.reason == "11 of the last 50 items failed, 10 of them with timeout"


def test_a_few_early_failures_prove_nothing() -> None:
    """With fewer than 50 outcomes there is no judgement."""
    breaker = Breaker()
    for _ in range(49):
        breaker.record("timeout")
    assert breaker.reason is None
    breaker.record(None)
    assert breaker.reason == "49 of the last 50 items failed, 49 of them with timeout"


def test_a_systemic_error_stops_at_once_and_the_first_reason_stays() -> None:
    """A dead key stops the run with its own words (field report 147)."""
    breaker = Breaker()
    breaker.stop("the key is not valid")
    breaker.stop("something later")
    for _ in range(60):
        breaker.record("timeout")
    assert breaker.reason == "the key is not valid"


@given(st.lists(st.booleans(), max_size=80), st.integers(1, 12), st.sampled_from([0.0, 0.2, 0.5, 1.0]))
def test_it_trips_exactly_when_a_full_window_is_too_bad(outcomes: list[bool], last: int, most: float) -> None:
    """The rolling rate is the rate of the last outcomes, no more and no less."""
    breaker = Breaker(most, last)
    for failed in outcomes:
        breaker.record("x" if failed else None)
    windows = [outcomes[start : start + last] for start in range(len(outcomes) - last + 1)]
    assert (breaker.reason is not None) == any(sum(window) > most * last for window in windows)


@pytest.mark.parametrize("failure", ["a", None])
def test_one_outcome_can_be_the_window(failure: str | None) -> None:
    """The smallest window judges each outcome."""
    breaker = Breaker(0.0, 1)
    breaker.record(failure)
    assert (breaker.reason is None) == (failure is None)
