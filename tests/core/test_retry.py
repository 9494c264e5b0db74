"""What follows a failed attempt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.model import ErrorKind, Outcome
from batchctl.core.retry import Decision, backoff, decide, poll_delay

AGAIN, FINAL, STOP = Decision.RESUBMIT, Decision.FINAL, Decision.SYSTEMIC
unit = st.floats(0, 1)


@pytest.mark.parametrize(
    ("outcome", "kind", "decision"),
    [
        (Outcome.ERRORED, ErrorKind.RETRYABLE, AGAIN),
        (Outcome.ERRORED, ErrorKind.PERMANENT, FINAL),
        (Outcome.ERRORED, ErrorKind.SYSTEMIC, STOP),
        (Outcome.EXPIRED, ErrorKind.RETRYABLE, AGAIN),
        (Outcome.MISSING, ErrorKind.RETRYABLE, AGAIN),
        (Outcome.CANCELED, ErrorKind.RETRYABLE, FINAL),
        (Outcome.INVALID, ErrorKind.RETRYABLE, FINAL),
        (Outcome.SUCCEEDED, ErrorKind.RETRYABLE, FINAL),
    ],
)
def test_decisions_of_the_first_round(outcome: Outcome, kind: ErrorKind, decision: Decision) -> None:
    """What may succeed later goes again, what cannot does not (field reports 71, 149)."""
    assert decide(outcome, kind, 0, 2) is decision


@given(st.sampled_from(Outcome), st.sampled_from(ErrorKind), st.integers(0, 9), st.integers(0, 9))
def test_resubmissions_end(outcome: Outcome, kind: ErrorKind, round_: int, most: int) -> None:
    """Nothing is sent more often than asked, and systemic errors spend nothing (field report 120)."""
    decision = decide(outcome, kind, round_, most)
    assert decision is not AGAIN or round_ < most
    assert (decision is STOP) == (outcome is Outcome.ERRORED and kind is ErrorKind.SYSTEMIC)


@given(st.integers(1, 10**9), st.floats(0.01, 10), st.floats(1, 600), unit)
def test_backoff_is_bounded_and_jittered(attempt: int, base: float, cap: float, random: float) -> None:
    """The longest wait is bounded, however often it failed (field report 127)."""
    delay = backoff(attempt, base, cap, random)
    assert 0 <= delay <= cap
    assert delay == pytest.approx(random * backoff(attempt, base, cap, 1.0))


def test_backoff_doubles() -> None:
    """Each failure doubles the range, up to the cap (field report 142)."""
    assert [backoff(attempt, 2, 10, 1.0) for attempt in (1, 2, 3, 4)] == [2, 4, 8, 10]


@given(st.floats(0.01, 7200), st.integers(0, 10**9), st.integers(0, 10**9), unit)
def test_poll_delays_stay_between_interval_and_minutes(
    interval: float, slowness: int, failures: int, random: float
) -> None:
    """A look is never much earlier than the interval, nor much later than ten of it, ten minutes or itself."""
    longest = max(interval, min(10 * interval, 600))
    assert 0.899 * interval <= poll_delay(interval, slowness, failures, random) <= 1.101 * longest


def test_poll_delays_grow_while_nothing_changes() -> None:
    """Looks slow down with silence and faster with failure; an interval over ten minutes is kept."""
    assert [poll_delay(60, count, 0, 0.5) for count in (0, 1, 2, 9)] == [60, 90, 135, 600]
    assert [poll_delay(60, 0, count, 0.5) for count in (0, 1, 2, 9)] == [60, 120, 240, 600]
    assert poll_delay(3600, 5, 5, 0.5) == 3600
    assert poll_delay(60, 0, 0, 0.0) == pytest.approx(54)
    assert poll_delay(60, 0, 0, 1.0) == pytest.approx(66)
