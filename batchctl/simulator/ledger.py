"""The book of every request that was accepted, and of the items that were accepted twice.

A request is *accepted* when the provider may answer or bill it: a synchronous call once it passed validation and
limits, a batch line once its batch exists. It stays *alive* until its outcome is known. An answer that was made but
could not be delivered (the connection was cut) has the outcome `lost`.

**Paid twice.** An acceptance is a violation when, at that moment, the item had already used up its copies: earlier
acceptances of the same identity that were alive then, or that ended with success. The identity is the digest of the
request body, or digest and custom id together when asked. Two different custom ids in one batch with an equal body
are two items, so an identity by digest alone has as many *copies* as the largest number of lines with that body in
any one batch; callers who know better (equal texts spread over batches) pass `copies`, or use custom ids too. Order is
the order of the book itself (a sequence number), which does not depend on how fast the clock runs.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

ALIVE = "alive"
SUCCEEDED = "succeeded"
LOST = "lost"

Identity = tuple[str, str | None]


@dataclass(slots=True)
class Acceptance:
    """One accepted request."""

    seq: int
    api: str
    lane: str
    batch_id: str | None
    custom_id: str | None
    digest: bytes
    attempt: int
    accepted_at: float
    accepted_real: float
    outcome: str = ALIVE
    detail: str = ""
    closed_seq: int | None = None
    closed_at: float | None = None
    closed_real: float | None = None

    def public(self) -> dict[str, Any]:
        """Give the line that the control endpoint shows; `*_real` are this machine's own clock."""
        return {
            "seq": self.seq,
            "api": self.api,
            "lane": self.lane,
            "batch_id": self.batch_id,
            "custom_id": self.custom_id,
            "digest": self.digest.hex(),
            "attempt": self.attempt,
            "accepted_at": self.accepted_at,
            "accepted_real": self.accepted_real,
            "outcome": self.outcome,
            "detail": self.detail,
            "closed_at": self.closed_at,
            "closed_real": self.closed_real,
        }


class Ledger:
    """Acceptances in order, with the number of times each body was accepted."""

    def __init__(self, *, keep: bool = True) -> None:
        self._keep = keep
        self._seq = 0
        self._entries: list[Acceptance] = []
        self._sendings: dict[bytes, tuple[int, str | None]] = {}
        self.outcomes: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()

    def next_attempt(self, digest: bytes, batch_id: str | None) -> int:
        """Number this sending of a body from 1; equal lines of one batch share a number."""
        if not self._keep:
            return 1
        attempt, last_batch = self._sendings.get(digest, (0, None))
        if batch_id is None or last_batch != batch_id:
            attempt += 1
            self._sendings[digest] = (attempt, batch_id)
        return attempt

    def accept(
        self,
        api: str,
        lane: str,
        digest: bytes,
        attempt: int,
        at: float,
        *,
        batch_id: str | None = None,
        custom_id: str | None = None,
    ) -> Acceptance:
        """Enter one acceptance."""
        self._seq += 1
        entry = Acceptance(self._seq, api, lane, batch_id, custom_id, digest, attempt, at, time.time())
        self.accepted[f"{api}.{lane}"] += 1
        if self._keep:
            self._entries.append(entry)
        return entry

    def close(self, entry: Acceptance, outcome: str, at: float, detail: str = "") -> None:
        """Enter what became of an acceptance."""
        self._seq += 1
        entry.outcome = outcome
        entry.detail = detail
        entry.closed_seq = self._seq
        entry.closed_at = at
        entry.closed_real = time.time()
        self.outcomes[outcome] += 1

    def entries(self) -> Iterator[dict[str, Any]]:
        """Yield all acceptances in order."""
        for entry in self._entries:
            yield entry.public()

    def violations(
        self, *, with_custom_id: bool = False, copies: Mapping[str, int] | None = None
    ) -> list[dict[str, Any]]:
        """List the acceptances that paid for an item again; see the module's text for the rule."""
        groups: defaultdict[Identity, list[Acceptance]] = defaultdict(list)
        for entry in self._entries:
            groups[entry.digest.hex(), entry.custom_id if with_custom_id else None].append(entry)
        found: list[dict[str, Any]] = []
        for (digest, custom_id), entries in groups.items():
            if len(entries) == 1:
                continue
            allowed = (copies or {}).get(digest) or _copies_in_one_batch(entries)
            for index, later in enumerate(entries):
                earlier = [entry for entry in entries[:index] if _blocks(entry, later)]
                if len(earlier) >= allowed:
                    found.append(
                        {
                            "digest": digest,
                            "custom_id": custom_id,
                            "copies": allowed,
                            "earlier": [entry.public() for entry in earlier],
                            "later": later.public(),
                        }
                    )
        return found


def _copies_in_one_batch(entries: list[Acceptance]) -> int:
    lines = Counter(entry.batch_id for entry in entries if entry.batch_id is not None)
    return max(lines.values(), default=1)


def _blocks(earlier: Acceptance, later: Acceptance) -> bool:
    """Tell whether sending `later` paid again for what `earlier` had answered or could still answer."""
    if earlier.outcome in (ALIVE, SUCCEEDED):
        return True
    return earlier.closed_seq is not None and earlier.closed_seq > later.seq
