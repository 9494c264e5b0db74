"""One batch of either provider: its items, its timetable, and where it stands at a given moment.

Everything here is a function of the record and the time, so that a stopped clock, a fast clock and a restart agree.
"""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass, field
from math import inf
from typing import Any

from batchctl.simulator.kinds import CODE, ENDING_CODES, FAILURE_CODES, SUCCESS_CODES
from batchctl.simulator.ledger import Acceptance

VALIDATING = "validating"
RUNNING = "running"
FINALIZING = "finalizing"
CANCELING = "canceling"
ENDED = "ended"


@dataclass(slots=True)
class Items:
    """The request lines of a batch: ids, digests, and where each line lies in its blob."""

    custom_ids: list[str] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    starts: array[int] = field(default_factory=lambda: array("Q"))
    lengths: array[int] = field(default_factory=lambda: array("Q"))
    tokens: int = 0
    model: str = ""

    def __len__(self) -> int:
        return len(self.custom_ids)

    def add(self, custom_id: str, digest: bytes, start: int, length: int) -> None:
        """Append one line."""
        self.custom_ids.append(custom_id)
        self.digests.append(digest)
        self.starts.append(start)
        self.lengths.append(length)


@dataclass(slots=True)
class Batch:
    """One batch; moments are virtual seconds since the epoch.

    Args:
        plan: one kind code per item, what it comes to if it is run.
        start_at: end of validation; equal to `created_at` where there is none.
        finish_at: when the work would be done; infinite when stuck.
        expires_at: the provider's deadline.
        effects: the batch fault rule in force.
        order_seed: fixes the order of work and of result lines.
    """

    id: str
    api: str
    seq: int
    created_at: float
    start_at: float
    finish_at: float
    expires_at: float
    finalizing: float
    items: Items
    blob: str
    plan: bytes
    effects: dict[str, Any]
    order_seed: int = 0
    endpoint: str = ""
    version: str = ""
    metadata: dict[str, str] | None = None
    input_file_id: str = ""
    errors: list[dict[str, Any]] = field(default_factory=list)
    output_expires: int | None = None
    phase: str = RUNNING
    ending: str = ""
    ended_at: float | None = None
    cancel_at: float | None = None
    cancel_until: float = inf
    stopped_at: float | None = None
    done: int = 0
    deleted: bool = False
    entries: list[Acceptance] = field(default_factory=list)
    _order: list[int] | None = None
    _worked: bytes | None = None

    def order(self) -> list[int]:
        """Give the order in which the items are worked on and written, which is not that of the input."""
        if self._order is None:
            self._order = list(range(len(self.items)))
            random.Random(self.order_seed).shuffle(self._order)  # noqa: S311 - repeatable, not secret
        return self._order

    def deadline(self) -> float:
        """Give the moment at which unfinished work is given up; never for a stuck batch."""
        if self.effects.get("stuck") or self.effects.get("ignore_deadline"):
            return inf
        if "expire" in self.effects:
            return self.created_at + float(self.effects.get("expire_after", self.expires_at - self.created_at))
        return self.expires_at

    def progress(self, now: float) -> int:
        """Count the items worked on by now."""
        if self.phase == ENDED:
            return self.done
        if self.phase == CANCELING and self.effects.get("cancel_finishes") and now >= self.cancel_until:
            return len(self.items)
        at = min(now, self.stopped_at) if self.stopped_at is not None else now
        if "expire" in self.effects:
            span, most = self.deadline() - self.start_at, float(self.effects["expire"])
        elif self.effects.get("stuck"):
            stuck = self.effects["stuck"]
            span, most = 60.0, 0.5 if stuck is True else float(stuck)
        else:
            span, most = self.finish_at - self.start_at, 1.0
        share = 1.0 if span <= 0 else min(max((at - self.start_at) / span, 0.0), 1.0)
        return int(len(self.items) * share * most + 1e-9)

    def next_change(self) -> float:
        """Give the moment of the next change of phase."""
        if self.phase == VALIDATING:
            return self.start_at
        if self.phase == RUNNING:
            return min(self.finish_at, self.deadline())
        if self.phase == FINALIZING:
            return self.finish_at + self.finalizing
        if self.phase == CANCELING:
            return self.cancel_until
        return inf

    def kind_codes(self, count: int) -> bytes:
        """Give the planned kinds of the first `count` items in working order."""
        # A list call asks every ended batch again, so the last answer is kept.
        if self._worked is None or len(self._worked) != count:
            plan = self.plan
            self._worked = bytes([plan[place] for place in self.order()[:count]])
        return self._worked

    def tally(self, now: float) -> dict[str, int]:
        """Count outcomes of the work done by now."""
        codes = self.kind_codes(self.progress(now))
        return {
            "succeeded": _count(codes, SUCCESS_CODES),
            "errored": _count(codes, FAILURE_CODES),
            "expired": codes.count(CODE["expired"]),
            "canceled": codes.count(CODE["canceled"]),
            "missing": codes.count(CODE["missing"]),
            "not_run": len(self.items) - len(codes),
        }


def _count(codes: bytes, wanted: bytes) -> int:
    return len(codes) - len(codes.translate(None, delete=wanted))


assert len(SUCCESS_CODES) + len(FAILURE_CODES) + len(ENDING_CODES) == len(CODE)
