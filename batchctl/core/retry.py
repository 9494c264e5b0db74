"""What follows a failed attempt, and how long to wait before the next call."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from batchctl.core.model import ErrorKind, Outcome

LONGEST_PAUSE = 3600.0  # seconds; what a provider asks for beyond it is asked again after it
LONGEST_POLL = 600.0  # seconds; an interval longer than this is kept as it is
_JITTER = 0.1
_SLOWEST = 10  # intervals between two looks at most: who asked for quick looks keeps them
_SLOWING = 1.5  # growth of the poll interval with each step
_DOUBLINGS = 32  # more would only overflow: every cap is reached long before


class Decision(StrEnum):
    """What happens to an item whose attempt did not succeed."""

    RESUBMIT = "resubmit"
    RETRY = "retry"  # again in the same lane: no round is spent
    FINAL = "final"
    SYSTEMIC = "systemic"  # the run stops, the item stays open and nothing is spent


def decide(outcome: Outcome, kind: ErrorKind, round: int, max_resubmits: int) -> Decision:  # noqa: A002  # the charter's word
    """Tell whether an item is sent again (field reports 120, 122 and 149).

    Args:
        outcome: what became of the attempt; cancels of a late batch are given as expired.
        kind: what its error asks for.
        round: 0 for the first submission.
        max_resubmits: rounds after the first.
    """
    match outcome:
        case Outcome.EXPIRED | Outcome.MISSING:
            may_succeed = True
        case Outcome.ERRORED:
            if kind is ErrorKind.SYSTEMIC:
                return Decision.SYSTEMIC
            may_succeed = kind is ErrorKind.RETRYABLE
        case Outcome.SUCCEEDED | Outcome.CANCELED | Outcome.INVALID:
            may_succeed = False
    return Decision.RESUBMIT if may_succeed and round < max_resubmits else Decision.FINAL


def backoff(attempt: int, base: float, cap: float, random: float) -> float:
    """Seconds before the next try: exponential with full jitter.

    Args:
        attempt: how many tries have failed, at least 1.
        base: upper bound after the first failure, in seconds.
        cap: upper bound for ever, in seconds.
        random: from 0 to 1.
    """
    return random * min(cap, base * 2.0 ** min(attempt - 1, _DOUBLINGS))


def is_due(moment: datetime | None, now: datetime, interval: float) -> bool:
    """Whether a stored moment has come, or lies further ahead than any pause: then a clock was wrong.

    Args:
        interval: seconds between two looks, which may be longer than every other pause.
    """
    if moment is None:
        return True
    ahead = (moment - now).total_seconds()
    return ahead <= 0 or ahead > max(LONGEST_PAUSE, interval * (1 + _JITTER))


def poll_delay(interval: float, slowness: int, failures: int, random: float) -> float:
    """Seconds until the next look at a batch, give or take a tenth; ten intervals or ten minutes at most.

    Args:
        interval: seconds between two looks at first.
        slowness: steps by which looks at a long-running batch are spaced out.
        failures: looks in a row that failed.
        random: from 0 to 1.
    """
    slowed = interval * _SLOWING ** min(slowness, _DOUBLINGS) * 2.0 ** min(failures, _DOUBLINGS)
    return min(slowed, max(interval, min(_SLOWEST * interval, LONGEST_POLL))) * (1 + _JITTER * (2 * random - 1))
