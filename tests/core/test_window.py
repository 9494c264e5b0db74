"""The size of the sliding window."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.limiter import Amounts
from batchctl.core.window import ASKED_SIZE, FIRST_SIZE, FULL, LOAD_EVERY, SMALL, Load, Window


def test_the_size_follows_budget_tokens_and_latency() -> None:
    """Rate times latency, with room for variance: 2,000 requests a minute of 3 s each need 100 in flight and some."""
    window = Window(most=1000)
    chance = random.Random(1)
    for _ in range(500):
        window.learn(Amounts(1, 2000), chance.lognormvariate(0.97, 0.5))
    assert 100 < window.size({"tokens": 4_000_000, "requests": 10_000}) < 150
    assert window.size({"tokens": 400_000}) < 22
    assert window.size({"tokens": 4_000_000, "requests": 60}) < 10


def test_the_size_is_known_before_the_first_answer() -> None:
    """At the start the plans decide together, and the first answers do not outweigh them."""
    window = Window(most=1000)
    window.expect(Amounts(tokens=1000))
    assert window.size({"tokens": 60_000}) == 20
    for _ in range(2):
        window.expect(Amounts(tokens=4000))
    assert window.size({"tokens": 180_000}) == 20
    window.learn(Amounts(tokens=1), 10.0)
    assert 20 <= window.size({"tokens": 180_000}) <= 30


def test_it_adapts_when_items_change() -> None:
    """Slower answers widen the window, larger items narrow it."""
    window = Window(most=1000)
    for _ in range(900):
        window.learn(Amounts(tokens=1000), 1.0)
    fast = window.size({"tokens": 600_000})
    for _ in range(500):
        window.learn(Amounts(tokens=1000), 8.0)
    slow = window.size({"tokens": 600_000})
    for _ in range(500):
        window.learn(Amounts(tokens=8000), 8.0)
    assert fast < slow / 4
    assert window.size({"tokens": 600_000}) == pytest.approx(fast, abs=3)


def test_without_limits_it_grows_with_success_and_halves_with_refusal() -> None:
    """An account that tells no limit is felt out (field report 156)."""
    window = Window(most=60)
    assert window.size({}) == FIRST_SIZE
    assert [Window(most=most, asked=True).size({}) for most in (8, 60)] == [8, ASKED_SIZE]
    sizes = []
    for _ in range(600):
        window.learn(Amounts(tokens=10), 1.0)
        sizes.append(window.size({}))
    assert sizes[:45] == [*range(5, 49), 48]
    assert sizes[300] == 55
    assert sizes[-1] == 60
    window.shrink()
    assert window.size({}) == 30
    for _ in range(10):
        window.shrink()
    assert window.size({}) == 1


@given(
    st.integers(1, 500),
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 600)), max_size=20),
    st.dictionaries(st.sampled_from(["tokens", "requests"]), st.integers(1, 10**8)),
)
def test_the_upper_bound_holds(most: int, answers: list[tuple[int, float]], limits: dict[str, int]) -> None:
    """At least one and never more than the connections there are (field report 152)."""
    window = Window(most)
    for tokens, seconds in answers:
        window.learn(Amounts(1, tokens), seconds)
        assert 1 <= window.size(limits) <= most


def test_a_full_processor_is_no_reason_to_open() -> None:
    """Where this process is the bottleneck more calls in flight would only wait in it, and a kill would repeat them."""
    window = Window(most=200)
    for _ in range(20_000):
        window.learn(Amounts(tokens=10), 0.02, full=True)
    assert window.size({}) == SMALL
    for _ in range(2_000):
        window.learn(Amounts(tokens=10), 0.02)
    assert window.size({}) == 200
    for _ in range(2_000):
        window.learn(Amounts(tokens=10), 0.02, full=True)
        window.size({})
    assert window.size({}) == SMALL


def test_the_load_is_the_part_of_the_processor_used_lately() -> None:
    """Looks in quick succession tell nothing, and what was long ago does not count."""
    load = Load()
    looks = [(100.0, 50.0), (100.0 + LOAD_EVERY / 2, 51.0), (101.0, 50.0 + FULL + 0.01), (102.0, 50.0 + 2 * FULL)]
    found = []
    for now, cpu in looks:
        load.look(now, cpu)
        found.append(load.is_full)
    assert found == [False, False, True, False]
