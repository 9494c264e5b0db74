"""Loops over the same requests: ours, a bare one of the same HTTP client, the SDK's. Each prints what it took as JSON.

Run as `python -m benchmarks.fanout_loops NAME URL COUNT WINDOW [uvloop]`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Job = TypeVar("Job")
PROMPT = "Sort this message: "
WORDS = "my parcel is late and nobody answers, please help me find out where it is " * 6


@dataclass
class Spent:
    """What a loop took, its preparation left out."""

    seconds: float = 0.0
    cpu: float = 0.0


@contextmanager
def spending() -> Iterator[Spent]:
    """Measure what happens inside."""
    spent = Spent()
    start, cpu = time.perf_counter(), time.process_time()
    yield spent
    spent.seconds, spent.cpu = time.perf_counter() - start, time.process_time() - cpu


def texts(count: int) -> Iterator[str]:
    """Prompts of about half a kilobyte."""
    return (f"{PROMPT}{number} {WORDS}" for number in range(count))


def body(text: str) -> dict[str, object]:
    """A request."""
    return {"model": "claude-sonnet-4-5", "max_tokens": 64, "messages": [{"role": "user", "content": text}]}


async def _window(jobs: Iterator[Job], size: int, call: Callable[[Job], Awaitable[None]]) -> Spent:
    async def worker() -> None:
        for job in jobs:
            await call(job)

    with spending() as spent:
        await asyncio.gather(*(worker() for _ in range(size)))
    return spent


async def bare(url: str, count: int, size: int) -> Spent:
    """The HTTP client with ready bodies; answers are read and forgotten."""
    import aiohttp

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers={"Content-Type": "application/json"}) as session:

        async def call(ready: bytes) -> None:
            async with session.post(f"{url}/v1/messages", data=ready) as response:
                await response.read()

        return await _window(iter([json.dumps(body(text)).encode() for text in texts(count)]), size, call)


async def sdk(url: str, count: int, size: int) -> Spent:
    """The SDK's default async client."""
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as client:

        async def call(text: str) -> None:
            await client.messages.create(**body(text))  # type: ignore[call-overload]

        return await _window(texts(count), size, call)


async def ours(url: str, count: int, size: int) -> Spent:
    """The whole lane: spool, limits, call, parse, durable results and state."""
    from batchctl.runs.context import Context
    from batchctl.runs.fanout_running import drive
    from batchctl.runs.held import hold
    from batchctl.runs.planning import PlanRequest, make_run
    from batchctl.runs.settings import Settings
    from batchctl.state.store import Store

    with tempfile.TemporaryDirectory() as folder:
        items = Path(folder) / "items.jsonl"
        items.write_text("".join(json.dumps({"id": f"i{n}", "t": t}) + "\n" for n, t in enumerate(texts(count))))
        settings = Settings(
            "anthropic", "/v1/messages", "claude-sonnet-4-5", prompt="{{ t }}", max_tokens=64, base_url=url,
            concurrency=size, rpm=10**8, tpm=10**11,
        )  # fmt: skip
        ctx = Context(state_path=Path(folder) / "s.db", emit=lambda _event: None)
        with Store.open(ctx.state_path) as store:
            make_run(ctx, PlanRequest("r", (str(items),), settings, f"{folder}/out"), lambda: store, packed=False)
            with hold(ctx, store, "r") as run:
                provider = run.sync_provider()
                first = json.dumps(body("warm")).encode()
                await provider.complete("warm", "/v1/messages", first, timeout=30)  # opens the session
                run.rates("claude-sonnet-4-5", batch=False)
                with spending() as spent:
                    await drive(run, provider, None)
                await provider.aclose()
                assert run.refresh().succeeded == count
        return spent


LOOPS = {loop.__name__: loop for loop in (bare, sdk, ours)}

if __name__ == "__main__":
    os.environ.setdefault("ANTHROPIC_API_KEY", "none-at-all")
    name, url, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    factory = None
    if sys.argv[5:] == ["uvloop"]:
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        spent = runner.run(LOOPS[name](url, count, size))
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": spent.seconds, "cpu": spent.cpu, "rss_mb": rss_mb}))
