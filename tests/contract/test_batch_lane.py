"""The batch lane of every adapter: what goes in, what comes out, what a look tells."""

from __future__ import annotations

import contextlib
import json
from datetime import timedelta
from typing import Any

import pytest

from batchctl.core.errors import Fault, InputError, ProviderError, SystemicError
from batchctl.core.model import ErrorKind, Outcome
from batchctl.providers import registry
from batchctl.providers.base import Phase
from batchctl.providers.errors import UNREADABLE, Call
from batchctl.simulator import answer
from tests.contract.conftest import SENDS, Bench, MakeBench, harmless, only_anthropic, only_openai

PROMPTS = [f"text number {number}" for number in range(8)]


async def test_a_batch_goes_in_and_every_answer_comes_out(bench: Bench) -> None:
    """Each answer belongs to its own prompt, whatever the order of lines."""
    created = await bench.submit(bench.submission(PROMPTS))
    check = await bench.ended(created.batch_id)
    assert check.created_at is not None
    assert created.expires_at == check.created_at + timedelta(days=1)
    answers = await bench.answers(check)
    assert {id_: got.text for id_, got in answers.items()} == {
        f"i{number}": answer(prompt) for number, prompt in enumerate(PROMPTS)
    }
    assert all(got.usage and got.usage.input_tokens and got.usage.output_tokens for got in answers.values())
    assert all(got.stop_reason and got.model for got in answers.values())
    assert bench.calls("*.batches.create") == 1


async def test_raw_line_separators_survive_both_ways(bench: Bench) -> None:
    """U+2028 and U+0085 inside prompts and answers cut nothing (field reports 111 and 113)."""
    bench.sim.set_faults({"items": [{"custom_id": "i1", "kind": "line_separators"}]})
    created = await bench.submit(bench.submission(["a\u2028b\u2029c\x85d", "e"]))
    answers = await bench.answers(await bench.ended(created.batch_id))
    assert answers["i0"].text == answer("a\u2028b\u2029c\x85d")
    assert "\u2028" in (answers["i1"].text or "")


async def test_errors_and_expiry_of_items(bench: Bench) -> None:
    """Each way an item can end is told apart, from both files where there are two."""
    kinds = [
        "invalid_request",
        "api_error",
        "low_credit",
        "context_too_long",
        "expired",
        "ok",
        "status_0",
        "string_error",
    ]
    bench.sim.set_faults({"items": [{"custom_id": f"i{number}", "kind": kind} for number, kind in enumerate(kinds)]})
    created = await bench.submit(bench.submission(PROMPTS))
    check = await bench.ended(created.batch_id)
    answers = await bench.answers(check)
    told = {kind: (answers[f"i{number}"].outcome, answers[f"i{number}"].error) for number, kind in enumerate(kinds)}
    assert told["ok"][0] is Outcome.SUCCEEDED
    assert told["expired"][0] is Outcome.EXPIRED
    wanted = {
        "invalid_request": ErrorKind.PERMANENT,
        "api_error": ErrorKind.RETRYABLE,
        "low_credit": ErrorKind.SYSTEMIC,
        "context_too_long": ErrorKind.PERMANENT,
        "status_0": ErrorKind.RETRYABLE,
        "string_error": ErrorKind.RETRYABLE,
    }
    assert {kind: error.kind for kind, (_, error) in told.items() if kind in wanted and error} == wanted


async def test_a_look_at_a_running_batch(bench: Bench) -> None:
    """A running batch has no outputs, and the provider's clock is read (field report 80)."""
    created = await bench.submit(bench.submission(PROMPTS))
    check = await bench.provider.check(created.batch_id)
    assert check.phase is Phase.IN_PROGRESS
    assert check.status in ("in_progress", "validating")
    assert check.outputs == ()
    assert check.server_time is not None
    assert abs(check.server_time.timestamp() - bench.sim.now()) < 2


async def test_an_unknown_status_is_shown_and_is_not_the_end(make_bench: MakeBench) -> None:
    """A word nobody knows counts as in progress (field report 85)."""
    bench = make_bench(faults={"batches": [{"status": "pondering"}]})
    created = await bench.submit(bench.submission(PROMPTS))
    bench.sim.advance(10)
    check = await bench.provider.check(created.batch_id)
    assert (check.status, check.phase) == ("pondering", Phase.IN_PROGRESS)


async def test_a_canceled_batch_keeps_what_it_finished(bench: Bench) -> None:
    """Cancel, see it canceling, collect the finished part; canceling again is no error."""
    created = await bench.submit(bench.submission(PROMPTS))
    bench.sim.advance(31)
    await bench.provider.cancel(created.batch_id)
    canceling = await bench.provider.check(created.batch_id)
    assert (canceling.phase, canceling.canceled) == (Phase.CANCELING, True)
    check = await bench.ended(created.batch_id)
    assert check.canceled
    answers = await bench.answers(check)
    assert 0 < sum(got.outcome is Outcome.SUCCEEDED for got in answers.values()) < len(PROMPTS)
    await bench.provider.cancel(created.batch_id)


async def test_an_expired_batch_gives_both_parts(make_bench: MakeBench) -> None:
    """Finished answers and expired lines both arrive (field report 96)."""
    bench = make_bench(batch_seconds=2 * 86_400.0)
    created = await bench.submit(bench.submission(PROMPTS))
    bench.sim.advance(86_401)
    check = await bench.provider.check(created.batch_id)
    assert (check.phase, check.expired) == (Phase.ENDED, True)
    outcomes = [got.outcome for got in (await bench.answers(check)).values()]
    assert len(outcomes) == len(PROMPTS)
    assert {Outcome.SUCCEEDED, Outcome.EXPIRED} == set(outcomes)


async def test_a_batch_of_failures_only(bench: Bench) -> None:
    """All lines failed: the error part alone is read (field report 92)."""
    bench.sim.set_faults({"items": [{"kind": "invalid_request"}]})
    created = await bench.submit(bench.submission(PROMPTS))
    answers = await bench.answers(await bench.ended(created.batch_id))
    assert {got.outcome for got in answers.values()} == {Outcome.ERRORED}
    assert len(answers) == len(PROMPTS)


async def test_an_id_the_provider_does_not_know(bench: Bench) -> None:
    """404 on a look is "not found", not a verdict (field report 74)."""
    with pytest.raises(ProviderError) as caught:
        await bench.provider.check("no/such batch")
    assert harmless(caught.value).fault is Fault.NOT_FOUND
    assert caught.value.status == 404


async def test_a_look_at_another_batch_is_none(bench: Bench) -> None:
    """A cache that mixes answers up must not have a batch's items counted by another's state."""
    created = await bench.submit(bench.submission(["one"]))
    bench.fault("*.batches.retrieve", action="edit", set={"id": "batch_other"})
    with pytest.raises(ProviderError) as caught:
        await bench.provider.check(created.batch_id)
    assert caught.value.type == UNREADABLE
    assert "batch_other" in str(caught.value)


@pytest.mark.parametrize(
    ("action", "fault"),
    [
        ({"action": "html"}, Fault.RETRY),
        ({"action": "drop"}, Fault.RETRY),
        ({"action": "status", "status": 529}, Fault.RETRY),
        ({"action": "status", "status": 429, "headers": {"retry-after": "7"}}, Fault.RETRY),
        ({"action": "status", "status": 200, "body": "<html>maintenance</html>"}, Fault.RETRY),
        ({"action": "status", "status": 200, "body": "{}"}, Fault.RETRY),
        ({"action": "status", "status": 401}, Fault.SYSTEMIC),
        ({"action": "status", "status": 403}, Fault.SYSTEMIC),
    ],
)
async def test_a_look_that_fails(bench: Bench, action: dict[str, Any], fault: Fault) -> None:
    """Outages of a look are worth another, refused credentials are not (field reports 76 and 78)."""
    created = await bench.submit(bench.submission(PROMPTS[:1]))
    bench.fault("*.batches.retrieve", **action)
    with pytest.raises(ProviderError) as caught:
        await bench.provider.check(created.batch_id)
    assert harmless(caught.value).fault is fault
    assert caught.value.retry_after == (7.0 if "headers" in action else None)


async def test_a_look_that_hangs_ends(bench: Bench) -> None:
    """A server that accepts and never answers holds nothing up for longer than a look may take."""
    created = await bench.submit(bench.submission(PROMPTS[:1]))
    bench.fault("*.batches.retrieve", action="hang", seconds=30)
    sdk = bench.provider._sdk  # its own limit is a minute
    with pytest.raises(ProviderError, match=r"no answer \(TimeoutError: after 0.1 s\)") as caught:
        async with sdk.mapped(Call.READ, total=0.1):
            await bench.provider.check(created.batch_id)
    assert caught.value.fault is Fault.RETRY


@pytest.mark.parametrize("bytes_kept", [0, 10, 700])
async def test_a_cut_download_does_not_pass_as_complete(bench: Bench, bytes_kept: int) -> None:
    """A body shorter than announced raises; the same download again is whole (field report 107)."""
    created = await bench.submit(bench.submission(PROMPTS))
    check = await bench.ended(created.batch_id)
    endpoint = {"anthropic": "anthropic.batches.results", "openai": "openai.files.content"}[bench.name]
    bench.fault(endpoint, action="truncate", bytes=bytes_kept, nth=1)
    with pytest.raises(ProviderError) as caught:
        await bench.lines(check)
    assert harmless(caught.value).fault is Fault.RETRY
    assert len(await bench.lines(check)) == len(PROMPTS)


async def test_a_reader_that_gives_up_leaves_no_connection_behind(bench: Bench) -> None:
    """Thirty downloads left after their first chunk do not use up the pool (field report 105)."""
    created = await bench.submit(bench.submission(PROMPTS))
    check = await bench.ended(created.batch_id)
    for _ in range(30):
        async with contextlib.aclosing(bench.provider.results(check)) as chunks:
            assert await anext(chunks)
    assert len(await bench.lines(check)) == len(PROMPTS)


async def test_a_missing_key_is_said_before_anything_is_sent(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key, no call; the hint names the variable."""
    for variable in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(InputError) as caught:
        registry.batch_provider(name)
    assert f"{name.upper()}_API_KEY" in (caught.value.hint or "")


async def test_a_key_with_a_line_break_is_named_without_being_shown(name: str) -> None:
    """A key pasted with its newline cannot be sent; the text does not repeat it."""
    with pytest.raises(InputError) as caught:
        registry.batch_provider(name, api_key="sk-pasted\n")
    assert "sk-pasted" not in caught.value.message


@pytest.mark.parametrize(("key", "status"), [("bad-key", 401), ("no-batch-key", 403)])
async def test_refused_credentials_stop_at_once(make_bench: MakeBench, key: str, status: int) -> None:
    """One call, a systemic fault, and the key is not in the text (field reports 70 and 147)."""
    bench = make_bench(key=key)
    error = await bench.refused(bench.submission(PROMPTS))
    assert (error.fault, error.status) == (Fault.SYSTEMIC, status)
    assert error.hint
    assert bench.calls("*.batches.create") + bench.calls("openai.files.upload") <= 2
    assert bench.sim.ledger() == []


@only_anthropic
async def test_no_results_address_elsewhere_is_followed(make_bench: MakeBench) -> None:
    """The key goes nowhere but to the base URL's host."""
    bench = make_bench(faults={"batches": [{"results_host": "http://127.0.0.1:9"}]})
    created = await bench.submit(bench.submission(PROMPTS))
    check = await bench.ended(created.batch_id)
    with pytest.raises(SystemicError, match="another host"):
        await bench.lines(check)
    assert bench.calls("anthropic.batches.results") == 0


@only_anthropic
async def test_archived_results_are_an_error_and_not_an_empty_batch(make_bench: MakeBench) -> None:
    """After 29 days the answers are gone; that must not look like a batch that answered nothing."""
    bench = make_bench()
    created = await bench.submit(bench.submission(PROMPTS))
    bench.sim.advance(30 * 86_400)
    check = await bench.provider.check(created.batch_id)
    with pytest.raises(ProviderError) as caught:
        await bench.lines(check)
    assert caught.value.fault is Fault.NOT_FOUND


@only_openai
@pytest.mark.parametrize("odd", ["", "missing"])
async def test_an_empty_file_id_means_no_file(make_bench: MakeBench, odd: str) -> None:
    """Empty, missing and null ids of files all mean absent (field report 94)."""
    bench = make_bench(faults={"batches": [{"error_file_id": odd}]})
    created = await bench.submit(bench.submission(PROMPTS))
    check = await bench.ended(created.batch_id)
    assert len(check.outputs) == 1
    assert len(await bench.lines(check)) == len(PROMPTS)


@only_openai
@pytest.mark.parametrize(
    ("fail", "queue_full", "lines"),
    [
        ("token_limit_exceeded", True, [None]),
        (
            [{"code": "invalid_json_line", "line": 3, "message": "bad"}, {"code": "empty_file", "message": "x"}],
            False,
            [3, None],
        ),
    ],
)
async def test_a_batch_refused_after_create(
    make_bench: MakeBench, fail: Any, queue_full: bool, lines: list[int | None]
) -> None:
    """A batch that turns `failed` tells its reasons by line, and if it was only the queue (field reports 37, 64)."""
    bench = make_bench(faults={"batches": [{"fail": fail}]})
    created = await bench.submit(bench.submission(PROMPTS))
    bench.sim.advance(5)
    check = await bench.provider.check(created.batch_id)
    assert (check.phase, check.status, check.queue_full) == (Phase.FAILED, "failed", queue_full)
    assert [fault.line for fault in check.faults] == lines
    assert check.outputs == ()


async def test_discard_deletes_the_input_once_and_twice(bench: Bench) -> None:
    """A file that is gone already is no error; a provider without files does nothing."""
    await bench.submit(bench.submission(PROMPTS))
    for file_id in (*bench.uploads, "file-gone"):
        await bench.provider.discard(file_id)
        await bench.provider.discard(file_id)
    assert bench.calls("openai.files.delete") == (4 if bench.name == "openai" else 0)


async def test_an_upload_made_earlier_is_used_again(bench: Bench) -> None:
    """A submission that knows its file uploads nothing (field report 49)."""
    await bench.submit(bench.submission(PROMPTS))
    if bench.name != "openai":
        assert bench.uploads == []
        return
    await bench.submit(bench.submission(PROMPTS, file_id=bench.uploads[0]))
    assert bench.calls("openai.files.upload") == 1
    assert len(bench.uploads) == 1


async def test_sends_count_in_the_right_place(bench: Bench) -> None:
    """One submit is one sending of the payload."""
    await bench.submit(bench.submission(PROMPTS))
    assert bench.calls(SENDS[bench.name]) == 1
    assert len(bench.sim.ledger()) == len(PROMPTS)
    assert json.dumps(bench.sim.violations()) == "[]"


async def test_address_and_key_from_the_sdks_own_variables(
    bench: Bench, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without arguments both lanes go where the SDK's variables say."""
    base_url = {"anthropic": bench.sim.anthropic_base_url, "openai": bench.sim.openai_base_url}[name]
    monkeypatch.setenv(f"{name.upper()}_BASE_URL", base_url)
    monkeypatch.setenv(f"{name.upper()}_API_KEY", "sk-of-the-environment")
    adapter: Any = registry.batch_provider(name)
    async with contextlib.aclosing(adapter):
        await adapter.submit(bench.submission(PROMPTS), bench.uploads.append)
        await adapter.complete("i0", bench.form.default_endpoint, bench.body("hello"), timeout=10)
    assert len(bench.sim.ledger()) == len(PROMPTS) + 1
