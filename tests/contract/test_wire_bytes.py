"""What goes over the wire, byte by byte, against a server that only takes notes."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestServer

from batchctl.core.errors import Fault, ProviderError
from batchctl.providers import registry
from batchctl.providers.base import Submission
from tests.contract.conftest import KEY, harmless

LINES = "".join(
    json.dumps({"custom_id": f"i{number}", "text": "\u2028é\x85 \u2029" * (number % 7)}, ensure_ascii=False) + "\n"
    for number in range(20_000)
).encode()


@dataclass
class Notes:
    """Requests as they arrived, and what to answer."""

    calls: list[tuple[str, str, Any, bytes]] = field(default_factory=list)
    status: int = 200
    answer: bytes = b'{"id":"x1","processing_status":"in_progress","status":"validating"}'

    async def take(self, request: web.Request) -> web.Response:
        """Note one request."""
        self.calls.append((request.method, request.path, request.headers.copy(), await request.read()))
        return web.Response(body=self.answer, status=self.status, content_type="application/json")


def base_url(name: str, server: BaseTestServer) -> str:
    """The address as each SDK wants it."""
    return f"http://127.0.0.1:{server.port}{'/v1' if name == 'openai' else ''}"


@pytest.fixture
def notes() -> Notes:
    """The notes of one test."""
    return Notes()


@pytest.fixture
async def provider(name: str, notes: Notes) -> AsyncIterator[Any]:
    """An adapter that talks to the note taker."""
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", notes.take)
    async with TestServer(app) as server:
        adapter = registry.batch_provider(name, base_url=base_url(name, server), api_key=KEY)
        yield adapter
        await adapter.aclose()


def submission(lines: bytes = LINES, **more: Any) -> Submission:
    """A batch of raw lines."""
    return Submission(
        key="bc-7",
        requests=lines.count(b"\n"),
        size=len(lines),
        endpoint="/v1/chat/completions",
        open_lines=lambda: io.BytesIO(lines),
        intent_at=datetime.now(UTC),
        **more,
    )


async def test_the_spool_arrives_byte_for_byte(provider: Any, notes: Notes, name: str) -> None:
    """One body of known length holds the spool's own bytes; nothing is encoded again."""
    await provider.submit(submission(headers={"anthropic-beta": "one,two"}), lambda _: None)
    method, path, headers, body = notes.calls[0]
    assert headers["Content-Length"] == str(len(body))
    assert "Transfer-Encoding" not in headers
    assert headers["Authorization"] == f"Bearer {KEY}"
    if name == "anthropic":
        assert (method, path) == ("POST", "/v1/messages/batches")
        assert body == b'{"requests":[' + LINES[:-1].replace(b"\n", b",") + b"]}"
        assert len(json.loads(body)["requests"]) == 20_000
        assert headers["anthropic-version"]
        assert headers["anthropic-beta"] == "one,two"
        assert len(notes.calls) == 1
    else:
        assert (method, path) == ("POST", "/v1/files")
        assert body.count(LINES) == 1
        assert b'filename="bc-7.jsonl"' in body
        assert b"Content-Type: application/jsonl" in body
        assert b'name="purpose"\r\n\r\nbatch\r\n' in body
        assert json.loads(notes.calls[1][3]) == {
            "input_file_id": "x1",
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "metadata": {"batchctl_key": "bc-7"},
        }
        assert len(notes.calls) == 2


@pytest.mark.parametrize("size", [1, 262_143, 262_144, 262_145, 524_288])
async def test_any_size_around_the_chunks(provider: Any, notes: Notes, name: str, size: int) -> None:
    """A line that ends at a chunk's edge loses and gains nothing."""
    lines = b'{"a":"' + b"x" * size + b'"}\n{"b":1}\n'
    await provider.submit(submission(lines), lambda _: None)
    if name == "anthropic":
        assert notes.calls[0][3] == b'{"requests":[' + lines[:-1].replace(b"\n", b",") + b"]}"
    else:
        assert lines in notes.calls[0][3]


async def test_a_sync_body_is_sent_as_it_is(provider: Any, notes: Notes, name: str) -> None:
    """Odd spacing and key order of a body survive, with the headers that are due beside it."""
    body = b'{ "b" : 1,\n "a":"\xe2\x80\xa8" }'
    notes.answer = b'{"type":"message","content":[],"choices":[{"message":{"content":"x"}}]}'
    endpoint = registry.request_format(name).default_endpoint
    await provider.complete("i1", endpoint, body, timeout=5)
    method, path, headers, sent = notes.calls[0]
    assert (method, path, sent) == ("POST", endpoint, body)
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert headers["Content-Type"] == "application/json"
    assert headers["User-Agent"].startswith("batchctl/")
    assert ("anthropic-version" in headers) == (name == "anthropic")


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500])
async def test_an_echoed_key_is_not_repeated(provider: Any, notes: Notes, name: str, status: int) -> None:
    """Providers echo keys, whole or masked; our texts do not."""
    echo = f"Incorrect API key provided: {KEY} also sk-abcd****wxyz, in {'long ' * 500}"
    notes.status, notes.answer = status, json.dumps({"error": {"message": echo, "type": "x"}}).encode()
    with pytest.raises(ProviderError) as caught:
        await provider.submit(submission(), lambda _: None)
    assert "wxyz" not in harmless(caught.value).message
    with pytest.raises(ProviderError) as caught:
        await provider.complete("i1", registry.request_format(name).default_endpoint, b"{}", timeout=5)
    assert "wxyz" not in harmless(caught.value).message


async def test_an_answer_without_an_id_is_in_doubt(provider: Any, notes: Notes) -> None:
    """A 200 that names no id may still stand for an accepted batch."""
    notes.answer = b'{"status":"ok"}'
    with pytest.raises(ProviderError) as caught:
        await provider.submit(submission(), lambda _: None)
    assert caught.value.fault is Fault.AMBIGUOUS


GROWTH = """
    import asyncio, io, os, resource, sys
    from datetime import UTC, datetime
    from batchctl.providers import registry
    from batchctl.providers.base import Submission

    SIZE, LINE = 50_000_000, b'{"custom_id":"i","params":"' + b"x" * 970 + b'"}\\n'

    class Lines(io.RawIOBase):
        def __init__(self):
            self.left, self.at = SIZE, 0
        def readable(self):
            return True
        def read(self, size=-1):
            size = min(size, SIZE - self.at)
            start = self.at % 1000
            self.at += size
            return (LINE * (size // 1000 + 2))[start:start + size]
        def tell(self):
            return self.at
        def seek(self, offset, whence=0):
            self.at = offset
            return offset

    def submission(size):
        global SIZE
        SIZE = size
        return Submission(key="k", requests=size // 1000, size=size, endpoint="/v1/chat/completions",
                          open_lines=Lines, intent_at=datetime.now(UTC))

    async def main(name, base_url):
        adapter = registry.batch_provider(name, base_url=base_url, api_key="sk-0123456789")
        await adapter.submit(submission(100_000), print)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        await adapter.submit(submission(50_000_000), print)
        await adapter.aclose()
        print("grown", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)

    assert len(LINE) == 1000
    asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
async def test_a_large_batch_is_sent_in_constant_memory(name: str) -> None:
    """Fifty megabytes grow the process by less than thirty."""
    sizes: list[int] = []

    async def swallow(request: web.Request) -> web.Response:
        size = 0
        async for chunk in request.content.iter_any():
            size += len(chunk)
        sizes.append(size)
        return web.Response(body=Notes().answer, content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", swallow)
    async with TestServer(app) as server:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", textwrap.dedent(GROWTH), name, base_url(name, server), stdout=subprocess.PIPE
        )
        out, _ = await child.communicate()
    assert child.returncode == 0
    assert max(sizes) >= 50_000_000
    unit = 1 if sys.platform == "linux" else 1024
    assert int(out.split()[-1]) / unit < 30_000
