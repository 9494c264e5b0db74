"""What counts as accepted, lost and paid twice."""

from collections.abc import Callable
from typing import Any

import anthropic
import pytest

from batchctl.simulator.ledger import Ledger
from tests.simulator.conftest import MODEL, Bench, chat_line, request

BODY = b"body-digest-16by"


def test_twice_while_alive_is_a_violation() -> None:
    """A second acceptance before the first is settled is paid twice, however the first ends."""
    book = Ledger()
    first = book.accept("openai", "batch", BODY, 1, 0.0, batch_id="b1", custom_id="a")
    book.accept("openai", "batch", BODY, 2, 1.0, batch_id="b2", custom_id="a")
    book.close(first, "expired", 2.0)
    (violation,) = book.violations()
    assert violation["later"]["batch_id"] == "b2"
    assert violation["earlier"][0]["batch_id"] == "b1"


@pytest.mark.parametrize(
    ("outcome", "count"), [("succeeded", 1), ("expired", 0), ("errored", 0), ("lost", 0), ("failed", 0)]
)
def test_again_after_the_end(outcome: str, count: int) -> None:
    """Only a success forbids sending again."""
    book = Ledger()
    book.close(book.accept("openai", "sync", BODY, 1, 0.0), outcome, 1.0)
    book.accept("openai", "sync", BODY, 2, 1.0)
    assert len(book.violations()) == count


def test_equal_bodies_of_one_batch_are_two_items() -> None:
    """Two lines with one body have two copies: resending the failed one is right, resending both is not."""
    book = Ledger()
    one = book.accept("openai", "batch", BODY, 1, 0.0, batch_id="b1", custom_id="a")
    two = book.accept("openai", "batch", BODY, 1, 0.0, batch_id="b1", custom_id="b")
    book.close(one, "succeeded", 1.0)
    book.close(two, "expired", 1.0)
    book.accept("openai", "batch", BODY, 2, 2.0, batch_id="b2", custom_id="b")
    assert book.violations() == []
    assert book.violations(with_custom_id=True) == []
    book.accept("openai", "sync", BODY, 3, 3.0)
    assert len(book.violations()) == 1


def test_equal_bodies_of_two_batches_need_telling() -> None:
    """Copies spread over batches are told apart by custom id, or by the number the caller expects."""
    book = Ledger()
    book.accept("openai", "batch", BODY, 1, 0.0, batch_id="b1", custom_id="a")
    book.accept("openai", "batch", BODY, 2, 0.0, batch_id="b2", custom_id="b")
    assert len(book.violations()) == 1
    assert book.violations(with_custom_id=True) == []
    assert book.violations(copies={BODY.hex(): 2}) == []


def test_attempts_count_batches_not_lines() -> None:
    """Equal lines of one batch share their attempt number."""
    book = Ledger()
    assert [book.next_attempt(BODY, name) for name in ("b1", "b1", "b2", None, None)] == [1, 1, 2, 3, 4]


async def test_key_order_and_lane_do_not_hide_an_item(bench: Bench) -> None:
    """The same body in another order and in the other lane is the same item."""
    batch = await bench.anthropic.messages.batches.create(requests=[request("a", "same text")])
    body: Any = {"messages": [{"content": "same text", "role": "user"}], "max_tokens": 64, "model": MODEL}
    await bench.anthropic.messages.create(**body)
    (violation,) = bench.sim.violations()
    assert (violation["earlier"][0]["batch_id"], violation["later"]["lane"]) == (batch.id, "sync")


async def test_a_lost_answer_is_booked_as_lost(bench_of: Callable[..., Bench]) -> None:
    """A single call whose answer was cut is paid but not answered, so repeating it is no violation."""
    bench = bench_of(
        faults={"calls": [{"endpoint": "anthropic.messages", "nth": 1, "action": "drop", "when": "after"}]}
    )
    body: Any = {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": "x"}]}
    with pytest.raises(anthropic.APIConnectionError):
        await bench.anthropic.messages.create(**body)
    await bench.anthropic.messages.create(**body)
    assert [entry["outcome"] for entry in bench.sim.ledger()] == ["lost", "succeeded"]
    assert bench.sim.violations() == []
    assert bench.sim.stats()["outcomes"]["lost"] == 1


async def test_stats_add_up(bench: Bench) -> None:
    """Accepted requests equal alive plus closed ones."""
    await bench.create_anthropic(["a", "b"])
    bench.sim.advance(100)
    await bench.create_openai([chat_line("a", "c")])
    stats = bench.sim.stats()
    assert stats["accepted"] == {"anthropic.batch": 2, "openai.batch": 1}
    assert stats["outcomes"] == {"succeeded": 2, "alive": 1}
    assert stats["batches"]["anthropic"] == {"created": 1, "open": 0, "ended": 1}
    assert stats["calls"]["openai.files.upload"] == 1
