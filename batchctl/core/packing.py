"""Cuts requests into batches and tells which batch may go in under the queue limits."""

from __future__ import annotations

from dataclasses import dataclass


class Packer:
    """Fills one batch after the other, in order, each within count and bytes; one packer a group.

    Args:
        requests: most requests in a batch.
        bytes: most bytes of a batch as sent.
        envelope_bytes: bytes around all requests of a batch.
        separator_bytes: bytes after each request.
    """

    def __init__(self, requests: int, bytes: int, envelope_bytes: int, separator_bytes: int) -> None:  # noqa: A002
        self._most_requests = requests
        self._most_bytes = bytes
        self._envelope = envelope_bytes
        self._separator = separator_bytes
        self.requests = 0
        self.bytes = envelope_bytes

    def add(self, size: int) -> bool:
        """Place a request; true when it starts a new batch, as the very first one does.

        A request that does not fit at all gets a batch of its own.
        """
        full = self.requests >= self._most_requests or self.bytes + size + self._separator > self._most_bytes
        starts = full or self.requests == 0
        if starts:
            self.requests = 0
            self.bytes = self._envelope
        self.requests += 1
        self.bytes += size + self._separator
        return starts

    def add_all(self, requests: int, size: int) -> bool:
        """Place requests of `size` bytes together in the batch being filled; false, and nothing done, without room."""
        after = self.bytes + size + requests * self._separator
        if self.requests + requests > self._most_requests or after > self._most_bytes:
            return False
        self.requests += requests
        self.bytes = after
        return True


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """How much of a run may be open at the provider at once; None sets no limit."""

    requests: int | None = None
    tokens: int | None = None


def admissible(
    requests: int,
    tokens: int,
    open_requests: int,
    open_tokens: int,
    open_batches: int,
    limits: QueueLimits,
) -> bool:
    """Whether a waiting batch of `requests` and `tokens` may go in beside what is open now.

    With nothing open any batch may: one larger than the whole budget goes alone instead of waiting for ever
    (field report 125's rule for batches).
    """
    if open_batches == 0:
        return True
    return (limits.requests is None or open_requests + requests <= limits.requests) and (
        limits.tokens is None or open_tokens + tokens <= limits.tokens
    )
