"""Faults of single HTTP calls, as the real SDKs meet them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from batchctl.simulator.editing import edited
from tests.simulator.conftest import MODEL, Bench, chat_line

Start = Callable[..., Bench]


def rules(*calls: dict[str, Any]) -> dict[str, Any]:
    """Write a fault file with call rules only."""
    return {"calls": list(calls)}


async def test_a_drop_before_accepting_leaves_nothing(bench_of: Start) -> None:
    """The connection breaks and no batch exists."""
    bench = bench_of(faults=rules({"endpoint": "anthropic.batches.create", "nth": 1, "action": "drop"}))
    with pytest.raises(anthropic.APIConnectionError):
        await bench.create_anthropic(["x"])
    assert (await bench.anthropic.messages.batches.list()).data == []
    await bench.create_anthropic(["x"])
    assert bench.sim.violations() == []


@pytest.mark.parametrize(
    "fault",
    [{"action": "drop"}, {"action": "status", "status": 500}, {"action": "html"}, {"action": "hang", "seconds": 0.05}],
)
async def test_a_fault_after_accepting_leaves_a_batch(bench_of: Start, fault: dict[str, Any]) -> None:
    """The answer is lost, the batch is there, and creating it again pays twice."""
    rule = {"endpoint": "*.batches.create", "nth": 1, "when": "after"} | fault
    bench = bench_of(faults=rules(rule))
    with pytest.raises(openai.APIError):
        await bench.create_openai([chat_line("a", "x")])
    listed = (await bench.openai.batches.list()).data
    assert [batch.metadata for batch in listed] == [{"run": "r1"}]
    await bench.create_openai([chat_line("a", "x")])
    (violation,) = bench.sim.violations()
    assert violation["later"]["custom_id"] == "a"


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 408, 409, 413, 429, 500, 503, 529])
async def test_statuses_come_in_each_envelope(bench_of: Start, status: int) -> None:
    """Both SDKs parse the error, its code and its retry-after."""
    rule = {"endpoint": "*", "action": "status", "status": status, "code": "odd", "headers": {"retry-after": "7"}}
    bench = bench_of(faults=rules(rule))
    with pytest.raises(anthropic.APIStatusError) as theirs:
        await bench.anthropic.messages.batches.retrieve("x")
    with pytest.raises(openai.APIStatusError) as ours:
        await bench.openai.batches.retrieve("x")
    assert theirs.value.status_code == ours.value.status_code == status
    assert ours.value.code == "odd"
    assert ours.value.response.headers["retry-after"] == "7"
    assert isinstance(theirs.value.body, dict)
    assert theirs.value.body["error"]["details"]["error_code"] == "odd"


async def test_named_errors_and_html(bench_of: Start) -> None:
    """Quota errors have their provider's words; a proxy's page is no JSON."""
    bench = bench_of(
        faults=rules(
            {"endpoint": "openai.files.upload", "action": "error", "name": "storage_quota"},
            {"endpoint": "openai.chat.completions", "action": "error", "name": "insufficient_quota"},
            {"endpoint": "anthropic.messages", "action": "error", "name": "spend_limit"},
            {"endpoint": "anthropic.batches.list", "action": "html", "status": 502},
        )
    )
    with pytest.raises(openai.BadRequestError, match="storage"):
        await bench.create_openai([chat_line("a", "x")])
    with pytest.raises(openai.RateLimitError) as caught:
        await bench.openai.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "x"}])
    assert caught.value.code == "insufficient_quota"
    with pytest.raises(anthropic.BadRequestError, match="specified API usage limits"):
        await bench.anthropic.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "x"}])
    with pytest.raises(anthropic.InternalServerError, match="html"):
        await bench.anthropic.messages.batches.list()


async def ended_openai(bench: Bench, count: int = 6) -> str:
    """Run a batch to its end and give the id of its output file."""
    batch = await bench.create_openai([chat_line(f"i{n}", f"text {n}") for n in range(count)])
    bench.sim.advance(100)
    file_id = (await bench.openai.batches.retrieve(batch.id)).output_file_id
    assert file_id is not None
    return file_id


async def test_truncated_downloads(bench_of: Start) -> None:
    """A cut body with the full length announced breaks; one without looks complete; the next is whole."""
    content = {"endpoint": "openai.files.content", "action": "truncate", "bytes": 300}
    bench = bench_of(faults=rules(content | {"nth": 1}, content | {"nth": 2, "content_length": False}))
    file_id = await ended_openai(bench)
    with pytest.raises(Exception, match=r"(?i)peer closed|incomplete|payload|connection"):
        await bench.openai.files.content(file_id)
    assert len((await bench.openai.files.content(file_id)).content) == 300
    assert len(await bench.openai_lines(file_id)) == 6


async def test_damaged_lines(bench_of: Start) -> None:
    """Lines are dropped, repeated, made up, cut or blank, with CRLF endings, once."""
    rule = {"endpoint": "openai.files.content", "times": 1, "action": "lines", "drop": 1, "duplicate": 2, "crlf": True}
    rule |= {"unknown": 1, "no_id": 1, "junk": 1, "blank": 1, "line_separators": True, "no_content_type": True}
    bench = bench_of(faults=rules(rule))
    file_id = await ended_openai(bench)
    damaged = (await bench.openai.files.content(file_id)).content
    lines = damaged.split(b"\r\n")
    assert len(lines) == 5 + 2 + 5 + 1
    assert b"" in lines[:-1]
    assert b'"custom_id":"stranger-0"' in damaged
    assert "\u2028".encode() in damaged
    assert len(await bench.openai_lines(file_id)) == 6


async def test_slow_answers_arrive(bench_of: Start) -> None:
    """A trickled answer is complete in the end."""
    rule = {"endpoint": "anthropic.batches.list", "action": "slow", "bytes": 10, "delay": 0.001}
    bench = bench_of(faults=rules(rule))
    assert (await bench.anthropic.messages.batches.list()).data == []


async def test_matchers(bench_of: Start) -> None:
    """`every`, `contains`, `from` and `times` narrow a rule."""
    bench = bench_of(
        faults=rules(
            {"endpoint": "openai.batches.list", "every": 2, "times": 1, "action": "status", "status": 500},
            {"endpoint": "anthropic.messages.*", "contains": "x", "action": "status", "status": 500},
            {"endpoint": "anthropic.messages", "contains": "poison", "action": "status", "status": 529},
            {"endpoint": "openai.files.list", "from": 50, "action": "status", "status": 402},
        )
    )
    outcomes = []
    for _ in range(4):
        try:
            await bench.openai.batches.list()
            outcomes.append("ok")
        except openai.InternalServerError:
            outcomes.append("500")
    assert outcomes == ["ok", "500", "ok", "ok"]
    await bench.anthropic.messages.create(model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "fine"}])
    with pytest.raises(anthropic.APIStatusError):
        await bench.anthropic.messages.create(
            model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "poison"}]
        )
    await bench.openai.files.list()
    bench.sim.advance(60)
    with pytest.raises(openai.APIStatusError):
        await bench.openai.files.list()


async def test_rules_can_be_replaced_and_are_checked(bench: Bench) -> None:
    """A new set of rules holds at once; a word that nothing obeys is refused."""
    bench.sim.set_faults(rules({"endpoint": "openai.*", "action": "status", "status": 401}))
    with pytest.raises(openai.AuthenticationError):
        await bench.openai.batches.list()
    bench.sim.set_faults({})
    await bench.openai.batches.list()
    refused: list[dict[str, Any]] = [
        {"call": []},
        rules({"endpoint": "x", "action": "explode"}),
        rules({"endpoint": "x", "action": "drop", "wen": "after"}),
        {"items": [{"kind": "odd"}]},
        {"items": {"kind": "ok"}},
        {"batches": ["stuck"]},
        rules({"endpoint": "x", "action": "status"}),
        rules({"endpoint": "x", "action": "drop", "times": "two"}),
    ]
    for bad in refused:
        with pytest.raises(ValueError, match=r"unknown|needs|must be|expected"):
            bench.sim.set_faults(bad)


async def test_a_client_that_leaves_mid_upload_leaves_nothing(bench_of: Start, tmp_path: Path) -> None:
    """Half an upload is neither a file nor a leftover in the data folder, and the server goes on."""
    bench = bench_of(data=tmp_path)
    host, port = bench.sim.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/files HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nContent-Length: 1000\r\n"
        b"Content-Type: multipart/form-data; boundary=XX\r\n\r\n"
        b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\nhalf'
    )
    await writer.drain()
    writer.transport.abort()
    assert (await bench.openai.files.list()).data == []
    await bench.create_openai([chat_line("a", "x")])
    assert [path.suffix for path in (tmp_path / "blobs").iterdir()] == [""]


async def test_uploads_may_break_midway(bench_of: Start) -> None:
    """The connection is reset after some bytes, twice, then the upload works."""
    rule = {"endpoint": "openai.files.upload", "times": 2, "action": "drop", "after_bytes": 50_000}
    bench = bench_of(faults=rules(rule))
    line = chat_line("a", "x" * 300_000)
    for _ in range(2):
        with pytest.raises(openai.APIConnectionError):
            await bench.create_openai([line])
    await bench.create_openai([line])


async def test_a_hang_is_left_to_the_client(bench_of: Start) -> None:
    """A call that never answers runs into the client's own timeout; nothing was accepted."""
    bench = bench_of(faults=rules({"endpoint": "anthropic.messages", "action": "hang"}))
    with pytest.raises(anthropic.APITimeoutError):
        await bench.anthropic.messages.create(
            model=MODEL, max_tokens=9, messages=[{"role": "user", "content": "x"}], timeout=0.1
        )
    assert bench.sim.ledger() == []


def test_an_edit_replaces_fields_wherever_they_stand() -> None:
    """Paths lead through lists; what is not there is left alone, and a download is edited line by line."""
    page = b'{"data":[{"id":"a","counts":{"total":1}},{"id":"b"}],"more":false}'
    rule = {"set": {"data.*.counts.total": None, "more": True, "no.such": 1}, "reverse": ["data"]}
    assert edited(page, rule) == b'{"data":[{"id":"b"},{"id":"a","counts":{"total":null}}],"more":true}'
    assert edited(page, {"set": {"data.*": 5}}) == b'{"data":[5,5],"more":false}'
    lines = b'{"id":"a"}\n\n{"id":"b"}\n'
    assert edited(lines, {"set": {"id": 1}}) == b'{"id":1}\n\n{"id":1}\n'
    assert edited(lines, {"set": {"id": 1}, "line": 3}) == b'{"id":"a"}\n\n{"id":1}\n'


async def test_an_edited_answer_is_what_a_client_sees(bench_of: Start) -> None:
    """An answer and a download in another shape; the batch itself is as it was."""
    results = {"endpoint": "anthropic.batches.results", "action": "edit", "set": {"custom_id": "other"}}
    retrieve = {"endpoint": "*.retrieve", "times": 1, "action": "edit", "set": {"processing_status": "thinking"}}
    bench = bench_of(faults=rules(results, retrieve))
    batch = await bench.create_anthropic(["x"])
    assert str((await bench.anthropic.messages.batches.retrieve(batch.id)).processing_status) == "thinking"
    bench.sim.advance(3600)
    assert (await bench.anthropic.messages.batches.retrieve(batch.id)).processing_status == "ended"
    lines = [line async for line in await bench.anthropic.messages.batches.results(batch.id)]
    assert [line.custom_id for line in lines] == ["other"]
