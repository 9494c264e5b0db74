"""Batches within their limits, and the door of the provider's queue."""

from __future__ import annotations

import itertools
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.packing import Packer, QueueLimits, admissible

ENVELOPE, SEPARATOR = 15, 1


def pack(sizes: list[int], requests: int, most_bytes: int) -> list[list[int]]:
    """Cut sizes into batches with a packer."""
    packer = Packer(requests, most_bytes, ENVELOPE, SEPARATOR)
    batches: list[list[int]] = []
    for size in sizes:
        if packer.add(size):
            batches.append([])
        batches[-1].append(size)
        assert packer.requests == len(batches[-1])
        assert packer.bytes == weight(batches[-1])
    return batches


def weight(batch: list[int]) -> int:
    """Bytes of a batch as sent."""
    return ENVELOPE + sum(batch) + SEPARATOR * len(batch)


@given(st.lists(st.integers(1, 200), max_size=60), st.integers(1, 9), st.integers(217, 700))
def test_batches_are_full_but_never_too_full(sizes: list[int], requests: int, most_bytes: int) -> None:
    """No batch exceeds count or bytes, none ends while the next request would fit, and order is kept."""
    batches = pack(sizes, requests, most_bytes)
    assert [size for batch in batches for size in batch] == sizes
    assert all(len(batch) <= requests and weight(batch) <= most_bytes for batch in batches)
    for batch, following in itertools.pairwise(batches):
        assert len(batch) == requests or weight([*batch, following[0]]) > most_bytes


def test_bytes_bind_before_the_count() -> None:
    """10 requests of 300 kB under 1 MB go three to a batch (field report 29)."""
    assert [len(batch) for batch in pack([300_000] * 10, 50_000, 1_000_000)] == [3, 3, 3, 1]


def test_a_request_over_the_limit_goes_alone() -> None:
    """What fits in no batch never drags others over the limit."""
    assert pack([50, 101, 50, 20], 10, 116) == [[50], [101], [50, 20]]


NONE = QueueLimits()


@pytest.mark.parametrize(
    ("batch", "opened", "limits", "expected"),
    [
        ((10, 100), (10**6, 10**9, 500), NONE, True),
        ((10, 100), (90, 0, 1), QueueLimits(requests=100), True),
        ((11, 100), (90, 0, 1), QueueLimits(requests=100), False),
        ((1, 100), (1, 900, 1), QueueLimits(tokens=1000), True),
        ((1, 101), (1, 900, 1), QueueLimits(tokens=1000), False),
        ((10**6, 10**9), (0, 0, 0), QueueLimits(1, 1), True),
    ],
)
def test_the_door_of_the_queue(
    batch: tuple[int, int], opened: tuple[int, int, int], limits: QueueLimits, *, expected: bool
) -> None:
    """A batch goes in when every limit has room for it, or when nothing else is open (field reports 65, 69)."""
    assert admissible(*batch, *opened, limits) is expected


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=20),
    st.builds(QueueLimits, *[st.none() | st.integers(1, 60)] * 2),
)
def test_every_batch_goes_in_at_last(batches: list[tuple[int, int]], limits: QueueLimits) -> None:
    """Nothing waits for ever, and the limits hold unless one batch alone is over them (field report 125)."""
    waiting = list(batches)
    opened: deque[tuple[int, int]] = deque()
    for _ in range(2 * len(batches) + 1):
        load = (sum(batch[0] for batch in opened), sum(batch[1] for batch in opened), len(opened))
        chosen = next((batch for batch in waiting if admissible(*batch, *load, limits)), None)
        if chosen is None and opened:
            opened.popleft()
        elif chosen is not None:
            waiting.remove(chosen)
            opened.append(chosen)
            if len(opened) > 1:
                assert limits.requests is None or sum(batch[0] for batch in opened) <= limits.requests
                assert limits.tokens is None or sum(batch[1] for batch in opened) <= limits.tokens
    assert not waiting
