"""Creates that go wrong: sent exactly once, told apart by whether they may have been accepted, and found again."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from batchctl.core.errors import Fault, InputError, ProviderError
from batchctl.providers import registry
from batchctl.providers.base import Absent, Found, Unknown
from tests.contract.conftest import KEY, Bench, MakeBench, harmless, only_anthropic, only_openai

PROMPTS = [f"text number {number}" for number in range(5)]

FAILURES: list[tuple[dict[str, Any], Fault]] = [
    ({"action": "drop", "when": "before"}, Fault.AMBIGUOUS),
    ({"action": "drop", "when": "after"}, Fault.AMBIGUOUS),
    ({"action": "html", "when": "after"}, Fault.AMBIGUOUS),
    ({"action": "html", "status": 413}, Fault.TOO_LARGE),
    ({"action": "html", "status": 200, "when": "after"}, Fault.AMBIGUOUS),
    ({"action": "status", "status": 200, "body": "", "when": "after"}, Fault.AMBIGUOUS),
    ({"action": "status", "status": 500, "when": "after"}, Fault.AMBIGUOUS),
    ({"action": "status", "status": 503}, Fault.AMBIGUOUS),
    ({"action": "status", "status": 408}, Fault.AMBIGUOUS),
    ({"action": "status", "status": 409}, Fault.AMBIGUOUS),
    ({"action": "status", "status": 429}, Fault.RETRY),
    ({"action": "status", "status": 307, "headers": {"Location": "http://127.0.0.1:9/"}}, Fault.SYSTEMIC),
    ({"action": "status", "status": 404, "body": "not found"}, Fault.SYSTEMIC),
    ({"action": "status", "status": 400}, Fault.PERMANENT),
    ({"action": "status", "status": 402}, Fault.SYSTEMIC),
    ({"action": "error", "name": "low_credit"}, Fault.SYSTEMIC),
    ({"action": "error", "name": "insufficient_quota"}, Fault.SYSTEMIC),
    ({"action": "error", "name": "spend_limit"}, Fault.SYSTEMIC),
]


def _id(value: object) -> str:
    return "-".join(str(part) for part in value.values() if part) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize(("action", "fault"), FAILURES, ids=_id)
async def test_a_failed_create_is_sent_once_and_classified(bench: Bench, action: dict[str, Any], fault: Fault) -> None:
    """Exactly one create reaches the provider whatever happens to it; what was accepted is never called refused.

    Field reports 56 and 144.
    """
    bench.fault("*.batches.create", **action)
    error = await bench.refused(bench.submission(PROMPTS))
    assert error.fault is fault
    assert bench.calls("*.batches.create") == 1
    assert len(bench.sim.ledger()) == (len(PROMPTS) if action.get("when") == "after" else 0)


@only_openai
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_lost_upload_is_never_a_create(make_bench: MakeBench, when: str) -> None:
    """An upload whose answer is lost may have arrived; no create follows it, and the list tells (field report 53)."""
    bench = make_bench()
    bench.fault("openai.files.upload", action="drop", when=when)
    submission = bench.submission(PROMPTS)
    assert (await bench.refused(submission)).fault is Fault.AMBIGUOUS
    assert bench.calls("openai.batches.create") == 0
    found = await bench.provider.find(submission, frozenset())
    assert isinstance(found, Absent)
    assert (found.file_id is not None) == (when == "after")


@only_openai
@pytest.mark.parametrize("named", ["storage_quota", "file_count_quota"])
async def test_a_full_file_storage_is_recognized(make_bench: MakeBench, name: str, named: str) -> None:
    """No room for files is its own fault (field reports 60 and 61)."""
    bench = make_bench()
    bench.fault("openai.files.upload", action="error", name=named)
    error = await bench.refused(bench.submission(PROMPTS))
    assert (error.fault, bool(error.hint)) == (Fault.STORAGE_FULL, True)


@only_openai
async def test_a_file_that_is_not_known_yet(make_bench: MakeBench) -> None:
    """Create right after upload says "not found": the same file id works later (field report 49)."""
    bench = make_bench(faults={"files": [{"not_found_creates": 1}]})
    error = await bench.refused(bench.submission(PROMPTS))
    assert error.fault is Fault.FILE_NOT_READY
    await bench.submit(bench.submission(PROMPTS, file_id=bench.uploads[0]))
    assert bench.calls("openai.files.upload") == 1


async def test_nobody_listens(name: str) -> None:
    """A connection that was never made is surely not accepted."""
    bench = Bench(name, None, registry.batch_provider(name, base_url="http://127.0.0.1:9/v1", api_key=KEY))  # type: ignore[arg-type]
    try:
        assert (await bench.refused(bench.submission(PROMPTS))).fault is Fault.RETRY
    finally:
        await bench.provider.aclose()


@pytest.mark.parametrize("base_url", ["127.0.0.1:9", "ftp://127.0.0.1/", "http://user:hunter2@127.0.0.1/"])
def test_an_address_that_is_none(name: str, base_url: str) -> None:
    """A base URL that cannot or must not be used is refused before there is anything to send."""
    for make in (registry.batch_provider, registry.sync_provider):
        with pytest.raises(InputError) as caught:
            make(name, base_url=base_url, api_key=KEY)
        assert "hunter2" not in str(caught.value)


@only_anthropic
async def test_a_full_queue(make_bench: MakeBench) -> None:
    """No room for more requests: the create is refused, with the wait the provider asks for (field report 67)."""
    bench = make_bench(anthropic_queue_requests=len(PROMPTS))
    await bench.submit(bench.submission(PROMPTS))
    error = await bench.refused(bench.submission(["one more"]))
    assert (error.fault, error.retry_after) == (Fault.QUEUE_FULL, 60.0)
    bench.fault("*.batches.create", action="error", name="queue_full")
    assert (await bench.refused(bench.submission(["one more"]))).fault is Fault.QUEUE_FULL


@only_anthropic
async def test_too_many_requests_for_one_batch(make_bench: MakeBench) -> None:
    """More requests than the provider takes in one batch: halve it (field report 32)."""
    bench = make_bench(anthropic_max_requests=4)
    assert (await bench.refused(bench.submission(PROMPTS))).fault is Fault.TOO_LARGE


async def test_too_many_bytes(make_bench: MakeBench, name: str) -> None:
    """A body over the provider's bytes gets 413: halve it (field report 34)."""
    bench = make_bench(**{f"{name}_max_bytes": 300})
    error = await bench.refused(bench.submission(PROMPTS))
    assert error.fault is Fault.TOO_LARGE
    assert error.hint


async def test_a_lost_answer_is_found_again(bench: Bench) -> None:
    """Accepted, but the answer never came: listing finds the batch, once, and nothing is sent."""
    bench.fault("*.batches.create", action="drop", when="after")
    submission = bench.submission(PROMPTS)
    assert (await bench.refused(submission)).fault is Fault.AMBIGUOUS
    found = await bench.provider.find(submission, frozenset())
    assert isinstance(found, Found)
    assert found.certain == (bench.name == "openai")
    assert found.created.batch_id == bench.sim.ledger()[0]["batch_id"]
    assert bench.calls("*.batches.create") == 1


async def test_a_lost_answer_of_an_ended_batch_is_certain(bench: Bench) -> None:
    """Once results are there, the custom ids decide."""
    bench.fault("*.batches.create", action="drop", when="after")
    submission = bench.submission(PROMPTS)
    await bench.refused(submission)
    await bench.ended(bench.sim.ledger()[0]["batch_id"])
    found = await bench.provider.find(submission, frozenset())
    assert isinstance(found, Found)
    assert found.certain


async def test_a_create_that_never_arrived_is_absent(bench: Bench) -> None:
    """Nothing was accepted: absent, and an uploaded file is offered for the next try."""
    bench.fault("*.batches.create", action="drop", when="before")
    submission = bench.submission(PROMPTS)
    await bench.refused(submission)
    assert await bench.provider.find(submission, frozenset()) == Absent(bench.uploads[0] if bench.uploads else None)


async def test_other_batches_are_not_ours(bench: Bench) -> None:
    """Batches of another size, of the ledger, or ended with other ids are no candidates (field report 22)."""
    await bench.submit(bench.submission(["another size"], key="k-other"))
    known = await bench.submit(bench.submission(PROMPTS, key="k-known"))
    stranger = bench.submission([f"other {number}" for number in range(5)], key="k-stranger")
    lines = stranger.open_lines().read().replace(b'"custom_id":"i', b'"custom_id":"x')
    foreign = await bench.submit(
        type(stranger)(
            key="k-stranger",
            requests=5,
            size=len(lines),
            endpoint=stranger.endpoint,
            open_lines=lambda: io.BytesIO(lines),
            intent_at=stranger.intent_at,
        )
    )
    await bench.ended(foreign.batch_id)
    found = await bench.provider.find(bench.submission(PROMPTS, key="k-lost"), {known.batch_id})
    assert isinstance(found, Absent)


async def test_two_candidates_are_unknown(bench: Bench) -> None:
    """Where nothing tells two batches apart nobody guesses; a provider with metadata never has to."""
    for key in ("k1", "k2"):
        await bench.submit(bench.submission(PROMPTS, key=key))
    found = await bench.provider.find(bench.submission(PROMPTS, key="k2"), frozenset())
    if bench.name == "openai":
        assert isinstance(found, Found)
        assert found.certain
    else:
        assert isinstance(found, Unknown)
        assert len(found.candidates) == 2


async def test_a_lagging_list(make_bench: MakeBench) -> None:
    """A list that does not show the batch yet says absent; the next look finds it."""
    bench = make_bench(faults={"batches": [{"list_lag_calls": 1}]})
    submission = bench.submission(PROMPTS)
    created = await bench.submit(submission)
    assert isinstance(await bench.provider.find(submission, frozenset()), Absent)
    found = await bench.provider.find(submission, frozenset())
    assert isinstance(found, Found)
    assert found.created.batch_id == created.batch_id


@pytest.mark.slow
async def test_settling_reads_all_pages_and_stops_at_old_ones(bench: Bench) -> None:
    """The batch is found behind a full page of newer ones, and an intent of next week finds nothing of today."""
    submission = bench.submission(PROMPTS)
    created = await bench.submit(submission)
    for number in range(101):
        await bench.submit(bench.submission(["newer"], key=f"newer-{number}"))
    found = await bench.provider.find(submission, frozenset())
    assert isinstance(found, Found)
    assert found.created.batch_id == created.batch_id
    assert bench.calls("*.batches.list") == 2
    bench.sim.advance(10 * 86_400)
    later = bench.submission(PROMPTS, intent_at=datetime.now(UTC) + timedelta(days=10))
    assert await bench.provider.find(later, frozenset()) == Absent(None)
    assert bench.calls("*.batches.list") == 3


@pytest.mark.parametrize("passed", [0, 2 * 86_400, 5 * 86_400])
async def test_an_intent_of_a_wrong_clock_still_finds_its_batch(bench: Bench, passed: float) -> None:
    """The clock was three days ahead when the intent was written: it must not hide what was created since."""
    fence = await bench.provider.fence()
    submission = bench.submission(PROMPTS, intent_at=datetime.now(UTC) + timedelta(days=3), fence=fence)
    created = await bench.submit(submission)
    bench.sim.advance(passed)
    found = await bench.provider.find(submission, frozenset())
    assert isinstance(found, Found)
    assert found.created.batch_id == created.batch_id


@only_openai
@pytest.mark.parametrize("status", [405, 500])
async def test_a_server_that_lists_no_files_settles_by_its_batches(bench: Bench, status: int) -> None:
    """The uploaded file only saves an upload, so the list of batches decides alone."""
    bench.fault("openai.files.list", action="status", status=status)
    assert await bench.provider.find(bench.submission(PROMPTS), frozenset()) == Absent(None)


async def test_settling_fails_loudly(bench: Bench) -> None:
    """A list that cannot be read is no proof of absence."""
    bench.fault("*.batches.list", action="html")
    with pytest.raises(ProviderError) as caught:
        await bench.provider.find(bench.submission(PROMPTS), frozenset())
    assert harmless(caught.value).fault is Fault.RETRY
