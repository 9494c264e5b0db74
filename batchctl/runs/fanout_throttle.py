"""Keeps the sync lane inside the account's limits: plans what a request takes, corrects it, slows down when refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from batchctl.core.adaptive import Budget, pause_after
from batchctl.core.limiter import RESOURCES, Amounts, Limiter, Taken, TooLargeError
from batchctl.core.model import Usage
from batchctl.core.tokens import TokenRatio
from batchctl.core.window import Load, Window
from batchctl.providers.base import RateHeaders

UNKNOWN_OUTPUT = 1_024  # output tokens planned for an answer while neither a limit nor an answer tells
MEMORY = 0.02  # weight of one answer in the mean output
RESIZE_EVERY = 8  # answers
ALWAYS_AT_FIRST = 200  # answers, while the window still opens
PACE_STEP = 1.0  # seconds between two looks at the pace
OPTIONS = {"requests": "--rpm", "tokens": "--tpm"}


class Throttle:
    """Limits a minute, learned and given, and how many requests are in flight under them.

    Args:
        limits: given by options, of the whole account; they win over what answers say.
        share: the part of the account that is ours.
        charge: what usage takes of the limits, in the provider's way of counting.
        max_tokens: most output tokens of an answer, None without a limit.
        most: most requests in flight.
        asked: a person named that number.
        cpu: processor seconds this process has used.
    """

    def __init__(
        self,
        limits: Mapping[str, int],
        share: float,
        *,
        charge: Callable[[Usage], Amounts],
        max_tokens: int | None,
        most: int,
        asked: bool,
        cpu: Callable[[], float],
        random: Random,
    ) -> None:
        self._budget = Budget(limits, share)
        self._given = dict(limits)
        self._shares_nothing = share >= 1  # then what remains is no reason to give way
        self._last_told: tuple[int | None, int | None, int | None] = (None, None, None)
        self.told: dict[str, int] = {}  # the account's limits as answers say
        self.limits = self._budget.limits()
        self._limiter = Limiter(self.limits)
        self._window = Window(most, asked=asked)
        self._load = Load()
        self._cpu = cpu
        self._most = most
        self._charge = charge
        self._random = random
        self._input = TokenRatio()
        self._output = float(max_tokens or UNKNOWN_OUTPUT)
        self._ratio = self._input.value  # what these two were when plans last followed them
        self._output_planned = round(self._output)
        self._planned = Amounts()
        self._answers = 0
        self._paced_at = float("-inf")
        self.pace = 1.0
        self._slowest = 1.0  # after a refusal
        self._moments = 0  # of refusal, one after the other
        self.paused_until = float("-inf")
        self.size = 1
        self._resize()

    def ready_at(self, now: float, tokens: int) -> float:
        """When a request of so many estimated input tokens may go; `now` means at once, with `take`.

        Raises:
            TooLargeError: the input alone needs more than a whole minute's budget.
        """
        if now - self._paced_at >= PACE_STEP:
            self._follow_pace(now)
        planned = self._charge(Usage(max(1, round(tokens * self._ratio)), self._output_planned))
        try:
            ready = self._limiter.ready_at(now, planned)
        except TooLargeError:
            planned = self._fitting(planned, tokens)
            ready = self._limiter.ready_at(now, planned)
        self._planned = planned
        return ready

    def _fitting(self, planned: Amounts, tokens: int) -> Amounts:
        """A plan cut down to the limits: output is only expected, so it never makes a request too large.

        Nor does a limit that only a header told: where it is meant, the provider itself refuses the request.
        """
        least = self._charge(Usage(self._input.correct(tokens), 0))
        for place, resource in enumerate(RESOURCES):
            limit = self.limits.get(resource)
            if limit is not None and planned[place] > limit:
                if least[place] > limit and resource in self._given:
                    raise TooLargeError(resource, least[place], limit)
                planned = planned._replace(**{resource: limit})
        return planned

    def take(self, now: float) -> Taken:
        """Count the request that was asked for last, and goes now."""
        if not self._answers:
            self._window.expect(self._planned)
            self._resize()
        return self._limiter.take(now, self._planned)

    def lost(self, taken: Taken) -> None:
        """A call has failed: what it used is not known."""
        self._limiter.lose(taken)

    def answered(self, now: float, taken: Taken, tokens: int, usage: Usage | None, seconds: float) -> None:
        """Learn from an answer.

        Args:
            tokens: estimated input tokens of its request.
            usage: what it used, where it says.
        """
        if now >= self.paused_until:
            self._moments = 0
        if usage is not None:
            amounts = self._charge(usage)
            self._limiter.correct(now, taken, amounts)
            self._input.learn(tokens, usage.input_tokens)
            self._answers = answers = self._answers + 1
            self._output += (usage.output_tokens - self._output) * (MEMORY if answers * MEMORY >= 1 else 1 / answers)
        else:
            amounts = taken.amounts
            self._limiter.lose(taken)
        self._window.learn(amounts, seconds, full=self._load.is_full)
        if self._answers % RESIZE_EVERY == 0 or self._answers < ALWAYS_AT_FIRST:
            self._load.look(now, self._cpu())
            self._ratio = self._input.value
            self._output_planned = round(self._output)
            self._resize()

    def told_by(self, now: float, rate: RateHeaders) -> None:
        """Follow the limits an answer reports, and give way where others use the account."""
        told = (rate.requests_limit, rate.tokens_limit, rate.output_tokens_limit)
        if told == self._last_told and self._shares_nothing:
            return
        self._last_told = told
        limits = _known(*told)
        self.told.update(limits)
        left = _known(rate.requests_remaining, rate.tokens_remaining, rate.output_tokens_remaining)
        if self._budget.learn(now, limits, left):
            self.limits = self._budget.limits()
            for resource, limit in self.limits.items():
                self._limiter.set_limit(resource, limit)
            self._resize()

    def refused(self, now: float, retry_after: float | None, *, ours: bool) -> float:
        """Pause everything after a refusal for lack of room; returns the seconds.

        Args:
            ours: the limits are set wrong, so the pace is lowered too; else the provider is busy.
        """
        if now >= self.paused_until:
            self._moments += 1
            self._window.shrink()
            self._resize()
        elif retry_after is None:
            return 0.0  # it was in flight with the first of this moment
        if ours:
            self._budget.pace.lower(now)
            self._follow_pace(now)
            self._slowest = min(self._slowest, self.pace)
        pause = pause_after(retry_after, max(self._moments, 1), self._random.random())
        self.paused_until = max(self.paused_until, now + pause)
        self._limiter.pause(self.paused_until)
        return pause

    def narrow(self, most: int) -> None:
        """Keep no more than so many in flight from now on."""
        self._most = min(self._most, max(most, 1))
        self._resize()

    def advice(self) -> str | None:
        """Which settings would have avoided the refusals there were; None where there was none."""
        if self._slowest >= 1.0:
            return None
        wrong = [
            f"{OPTIONS[name]} {self.told[name]} (it was {given:,}, the account has {self.told[name]:,})"
            for name, given in self._given.items()
            if given > self.told.get(name, given)
        ]
        known = self.limits.items()
        fitting = wrong or [f"{OPTIONS[name]} {int(limit * self._slowest)}" for name, limit in known if name in OPTIONS]
        return f"{' '.join(fitting) or '--rpm or --tpm'} would have avoided it"

    def _resize(self) -> None:
        self.size = min(self._window.size(self.limits), self._most)

    def _follow_pace(self, now: float) -> None:
        self._paced_at = now
        pace = self._budget.pace.at(now)
        if pace != self.pace:
            self.pace = pace
            self._limiter.set_pace(pace)


def _known(requests: int | None, tokens: int | None, output: int | None) -> dict[str, int]:
    """Those of three amounts that an answer gave, by resource."""
    given = (("requests", requests), ("tokens", tokens), ("output", output))
    return {name: amount for name, amount in given if amount is not None}
