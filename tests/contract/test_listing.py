"""What `doctor` reads from the providers' lists: batches, the ids in them, uploaded files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.contract.conftest import Bench

NOW = datetime.now(UTC)


async def test_listed_batches_tell_key_size_and_ids(bench: Bench) -> None:
    """Every batch is listed, newest first; its custom ids can be read once the provider shows them."""
    first = await bench.submit(bench.submission(["a", "b"], key="bc-key-1"))
    second = await bench.submit(bench.submission(["c"], key="bc-key-2"))
    for _ in range(3):
        bench.sim.advance(3600)
    listed = [batch async for batch in bench.provider.listed(NOW)]
    assert [batch.created.batch_id for batch in listed] == [second.batch_id, first.batch_id]
    assert [batch.requests for batch in listed] == [1, 2]
    assert [batch.key for batch in listed] == ([None, None] if bench.name == "anthropic" else ["bc-key-2", "bc-key-1"])
    assert {id_ async for id_ in bench.provider.custom_ids(listed[1])} == {"i0", "i1"}


async def test_ids_that_cannot_be_read_are_none(bench: Bench) -> None:
    """A running Anthropic batch and a deleted OpenAI file say nothing, and that is no error."""
    await bench.submit(bench.submission(["a"]))
    for file_id in bench.uploads:
        await bench.provider.discard(file_id)
    (listed,) = [batch async for batch in bench.provider.listed(NOW)]
    assert [id_ async for id_ in bench.provider.custom_ids(listed)] == []


async def test_older_batches_are_left_out(bench: Bench) -> None:
    """The list ends at the moment asked for."""
    await bench.submit(bench.submission(["a"]))
    bench.sim.advance(9 * 86_400)
    assert [batch async for batch in bench.provider.listed(NOW + timedelta(days=9))] == []


async def test_uploads_carry_their_intent_key(bench: Bench) -> None:
    """Input files are found by the key in their name."""
    await bench.submit(bench.submission(["a"], key="bc-key-9"))
    assert [key async for _, key in bench.provider.uploads(NOW)] == ([] if bench.name == "anthropic" else ["bc-key-9"])
