"""Times of providers' objects, and since when a lost create can be listed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

CLOCK_SLACK = timedelta(seconds=60)
LOOK_BACK = timedelta(days=7)
"""How far before an intent lists are still read: the clock here may have been wrong when the intent was written."""
_YEARS = range(1971, 2201)  # a time outside is none, and could not be reckoned with
KEPT = timedelta(days=30)
"""How far they are read where it surely was; older batches have no results any more."""


def sane(moment: datetime) -> datetime | None:
    """A moment of our age; None for any other."""
    return moment if moment.year in _YEARS else None


def from_text(text: str | None) -> datetime | None:
    """An RFC 3339 time; None for none or for one that cannot be read."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return sane(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def from_unix(seconds: float | None) -> datetime | None:
    """A time in Unix seconds; None for none or for one out of range."""
    try:
        return None if not seconds else sane(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def earliest(intent_at: datetime, server_now: datetime | None, now: datetime) -> datetime:
    """The earliest time, by the provider's clock, at which the create of an intent can be listed.

    A minute of slack, and more where the provider's clock runs behind ours; a clock that runs ahead takes nothing off.
    An intent from the provider's future was written by a wrong clock, so it says nothing.
    """
    behind = now - server_now if server_now is not None else timedelta()
    since = intent_at - CLOCK_SLACK - max(behind, timedelta())
    if server_now is not None and since > server_now:
        return server_now - KEPT
    return since
