"""Lists that mislead: batches of others, in another order, with fields missing. Nobody's batch is taken for ours."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batchctl.core.errors import Fault, ProviderError
from batchctl.providers.base import Absent, Found, Submission, Unknown
from batchctl.providers.errors import UNREADABLE
from tests.contract.conftest import Bench, only_anthropic, only_openai

PROMPTS = [f"text number {number}" for number in range(5)]
OTHER_PROMPTS = [f"something else about {number}" for number in range(5)]


def entry(bench: Bench, id_: str, age: float = 0.0, **fields: Any) -> dict[str, Any]:
    """A listed batch of five requests, `age` seconds old."""
    created_at = datetime.now(UTC) - timedelta(seconds=age)
    if bench.name == "anthropic":
        counts = {"processing": 5, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
        whole: dict[str, Any] = {"created_at": created_at.isoformat(), "request_counts": counts}
        whole["processing_status"] = "in_progress"
    else:
        counts = {"total": 5, "completed": 0, "failed": 0}
        whole = {"created_at": int(created_at.timestamp()), "status": "in_progress", "request_counts": counts}
        whole |= {"input_file_id": f"file-of-{id_}", "metadata": {}}
    return {"id": id_} | whole | fields


async def found_in(bench: Bench, entries: list[Any], submission: Submission | None = None, **page: Any) -> Any:
    """What settling finds in a list of just these entries."""
    body = json.dumps({"data": entries, "has_more": False} | page)
    bench.fault("*.batches.list", action="status", status=200, body=body)
    return await bench.provider.find(submission or bench.submission(PROMPTS, key="ours"), frozenset())


@only_anthropic
@pytest.mark.parametrize("ended", [False, True])
async def test_an_older_batch_of_the_same_items_is_not_ours(bench: Bench, ended: bool) -> None:
    """Another prompt, the same ids and count, sent a moment before: the fence keeps it out, running or ended."""
    others = await bench.submit(bench.submission(OTHER_PROMPTS))
    if ended:
        await bench.ended(others.batch_id)
    submission = bench.submission(PROMPTS, fence=await bench.provider.fence())
    assert submission.fence == others.batch_id
    assert await bench.provider.find(submission, frozenset()) == Absent()
    ours = await bench.submit(submission)
    found = await bench.provider.find(submission, frozenset())
    assert isinstance(found, Found)
    assert found.created.batch_id == ours.batch_id


@only_anthropic
@pytest.mark.parametrize("status", [403, 404, 405])
async def test_a_server_without_lists_has_no_fence(bench: Bench, status: int) -> None:
    """That is no reason not to send; a list that is down for now is."""
    bench.fault("*.batches.list", action="status", status=status)
    assert await bench.provider.fence() is None
    bench.fault("*.batches.list", action="status", status=503)
    with pytest.raises(ProviderError):
        await bench.provider.fence()
    bench.sim.set_faults({})
    assert await bench.provider.fence() == ""


@only_anthropic
async def test_an_older_batch_without_a_fence_is_in_doubt(bench: Bench) -> None:
    """The same ids prove nothing: it may be somebody's batch of the same items, or ours under a wrong clock."""
    others = await bench.submit(bench.submission(OTHER_PROMPTS, intent_at=datetime.now(UTC)))
    await bench.ended(others.batch_id)
    later = bench.submission(PROMPTS, intent_at=datetime.now(UTC) + timedelta(minutes=5))
    found = await bench.provider.find(later, frozenset())
    assert isinstance(found, Unknown)
    assert found.candidates == (others.batch_id,)


@only_anthropic
async def test_results_out_of_reach_are_no_evidence(bench: Bench) -> None:
    """Deleted, archived or behind a proxy: another's results that cannot be read leave its batch a candidate."""
    elsewhere = entry(bench, "far", processing_status="ended", results_url="https://elsewhere.example/results")
    gone = entry(bench, "gone", processing_status="ended", results_url="/v1/messages/batches/gone/results")
    found = await found_in(bench, [elsewhere, gone])
    assert isinstance(found, Unknown)
    assert set(found.candidates) == {"far", "gone"}


@only_anthropic
async def test_ids_of_our_making_prove_a_batch_of_any_age(bench: Bench) -> None:
    """Tagged and generated ids carry the run's token, so no clock and no fence is needed."""
    submission = bench.submission(PROMPTS)
    lines = submission.open_lines().read().replace(b'"custom_id":"i', b'"custom_id":"bctl-0a0a0a0a-1-')
    ours = Submission(
        key="ours",
        requests=5,
        size=len(lines),
        endpoint=submission.endpoint,
        open_lines=lambda: io.BytesIO(lines),
        intent_at=datetime.now(UTC) + timedelta(days=1),
    )
    created = await bench.submit(ours)
    await bench.ended(created.batch_id)
    found = await bench.provider.find(ours, frozenset())
    assert isinstance(found, Found)
    assert (found.created.batch_id, found.certain, found.evidence) == (created.batch_id, True, "by its ids")


@only_anthropic
async def test_order_within_seconds_says_nothing(bench: Bench) -> None:
    """Two batches of one second may be listed either way round, so the one behind the fence is in doubt."""
    near, far = entry(bench, "near", age=1), entry(bench, "far", age=60)
    fence = entry(bench, "fence", age=1)
    submission = bench.submission(PROMPTS, fence="fence")
    assert (await found_in(bench, [fence, near, far], submission)).candidates == ("near",)
    assert await found_in(bench, [fence, far], submission) == Absent()
    assert (await found_in(bench, [near, fence, far], submission)).created.batch_id == "near"


@only_anthropic
@pytest.mark.parametrize("counts", [None, {}, {"processing": None}, {"processing": 0, "succeeded": 0}, "five"])
async def test_a_list_that_does_not_count_proves_no_absence(bench: Bench, counts: Any) -> None:
    """A batch of unknown size may be ours: unknown, never absent."""
    found = await found_in(bench, [entry(bench, "b1", request_counts=counts)])
    assert isinstance(found, Unknown)
    assert found.candidates == ("b1",)


@only_openai
async def test_a_list_without_keys_and_files_proves_no_absence(bench: Bench) -> None:
    """A server that drops both metadata and input file tells nothing; one that keeps the file does."""
    mute = entry(bench, "b1", metadata=None, input_file_id=None)
    assert isinstance(await found_in(bench, [mute]), Unknown)
    assert await found_in(bench, [entry(bench, "b1", metadata=None)]) == Absent()
    ours = bench.submission(PROMPTS, key="ours", file_id="file-of-b1")
    assert (await found_in(bench, [entry(bench, "b1", metadata=None)], ours)).created.batch_id == "b1"
    assert (await found_in(bench, [entry(bench, "b1", metadata={"batchctl_key": "ours"})])).certain


@pytest.mark.parametrize("fence", [None, "old"])
async def test_a_list_that_is_oldest_first_is_read_to_its_end(bench: Bench, fence: str | None) -> None:
    """An old batch at the start hides nothing that comes after it."""
    day = 86_400
    listed = [entry(bench, "old", age=300 * day), entry(bench, "other", age=200 * day), entry(bench, "new")]
    if bench.name == "openai":
        listed[2]["metadata"] = {"batchctl_key": "ours"}
    found = await found_in(bench, listed, bench.submission(PROMPTS, key="ours", fence=fence))
    assert isinstance(found, Found)
    assert found.created.batch_id == "new"


async def test_a_list_that_does_not_end_is_unreadable(bench: Bench) -> None:
    """A server that ignores the cursor gives the same page for ever: an error, not a hang and not an absence."""
    with pytest.raises(ProviderError) as caught:
        await found_in(bench, [entry(bench, "b1", request_counts={"total": 7, "processing": 7})], has_more=True)
    assert (caught.value.fault, caught.value.type) == (Fault.RETRY, UNREADABLE)
    assert bench.calls("*.batches.list") == 2


@pytest.mark.parametrize(
    "odd",
    [
        {"metadata": {"project": 5}},
        {"metadata": "none"},
        {"created_at": "1796131445"},
        {"created_at": 1796131445},
        {"created_at": {}},
        {"expires_at": "9999-12-31T23:59:59-14:00"},
        {"expires_at": 253402300799},
        {"request_counts": {"total": 7.0, "processing": 7.0}},
    ],
    ids=str,
)
async def test_an_odd_entry_of_somebody_hides_nothing(bench: Bench, odd: dict[str, Any]) -> None:
    """One entry with a wrongly typed field does not make the whole list unreadable."""
    others = entry(bench, "others", request_counts={"total": 7, "processing": 7}) | odd
    assert await found_in(bench, [others, None]) == Absent()


@pytest.mark.parametrize("data", [None, [5], [{"id": 5}], [{}]])
async def test_a_list_that_cannot_be_understood_is_no_absence(bench: Bench, data: Any) -> None:
    """What may be a batch and cannot be read leaves the create in doubt."""
    with pytest.raises(ProviderError) as caught:
        await found_in(bench, [], data=data)
    assert caught.value.type == UNREADABLE
