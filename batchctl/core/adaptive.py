"""Follows the account: limits learned from answers, a share of them left to others, the pace lowered by refusals."""

from __future__ import annotations

from collections.abc import Mapping

from batchctl.core.retry import LONGEST_PAUSE

LOWER = 0.7  # what is left of the pace after a refusal
FLOOR = 0.05  # the pace never falls below: a wait stays bounded (field report 127)
RECOVERY = 0.001  # part of the full pace regained a second: five minutes for one refusal
CALM = 5.0  # seconds in which further refusals belong to the first: they were in flight with it
LONGEST_GUESS = 30.0  # seconds, where the provider does not say


class Pace:
    """Part of the limits that is used: lowered by refusals, slowly regained."""

    def __init__(self) -> None:
        self._part = 1.0
        self._since = 0.0
        self._lowered_at = float("-inf")

    def at(self, now: float) -> float:
        """The part now, above 0 and at most 1."""
        return min(1.0, self._part + max(now - self._since, 0.0) * RECOVERY)

    def lower(self, now: float, to: float = LOWER) -> None:
        """Lower the pace to a part of what it is, at least the usual one, once for all refusals of a moment."""
        if now - self._lowered_at < CALM:
            return
        self._part = max(self.at(now) * max(to, LOWER), FLOOR)
        self._since = self._lowered_at = now


class Budget:
    """The limits this run may use.

    Args:
        given: the account's limits a minute as options say; they win over what answers say.
        share: part of the account's limits that is ours, above 0 and at most 1.
    """

    def __init__(self, given: Mapping[str, int], share: float) -> None:
        self._account = dict(given)
        self._given = frozenset(given)
        self._share = share
        self.pace = Pace()

    def limits(self) -> dict[str, int]:
        """Our part of each known limit, at least 1."""
        return {resource: max(int(limit * self._share), 1) for resource, limit in self._account.items()}

    def learn(self, now: float, limits: Mapping[str, int], remaining: Mapping[str, int]) -> bool:
        """Take in what an answer says of the account; true when a limit changed.

        Where less remains than the part that is not ours, others are using the account: we give way.
        """
        before = dict(self._account)
        self._account.update((name, limit) for name, limit in limits.items() if name not in self._given and limit > 0)
        for resource, left in remaining.items():
            if resource in self._account:
                limit = self._account[resource]
                lacking = limit * (1 - self._share) - left
                if lacking > 0:
                    self.pace.lower(now, 1 - lacking / (limit * self._share))
        return self._account != before


def pause_after(retry_after: float | None, refusals: int, random: float) -> float:
    """Seconds the whole pool waits after a refusal; the jitter is added, never subtracted (field reports 139, 142).

    Args:
        retry_after: what the provider asked for, in seconds; an hour at most is waited before it is asked again.
        refusals: how many moments of refusal in a row there were, at least 1.
        random: from 0 to 1.
    """
    asked = min(2.0 ** min(refusals - 1, 10), LONGEST_GUESS) if retry_after is None else min(retry_after, LONGEST_PAUSE)
    return asked + random * max(asked * 0.1, 0.5)
