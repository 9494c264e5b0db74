"""Simulators and real SDK clients for the tests of the simulator."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from batchctl.simulator import SimulatorConfig, SimulatorThread

MODEL = "claude-haiku-4-5"
GPT = "gpt-4o-mini"


class Bench:
    """One running simulator with a stopped clock, and a real client of each provider."""

    def __init__(self, sim: SimulatorThread) -> None:
        self.sim = sim
        # Loading the certificate store, 40 ms a client, is all that `verify` adds on plain HTTP.
        self.anthropic = AsyncAnthropic(
            api_key="key",
            base_url=sim.anthropic_base_url,
            max_retries=0,
            http_client=anthropic.DefaultAsyncHttpxClient(verify=False),
        )
        self.openai = AsyncOpenAI(
            api_key="key",
            base_url=sim.openai_base_url,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(verify=False),
        )

    async def create_anthropic(self, texts: list[str]) -> Any:
        """Create a message batch with ids i0, i1 and so on."""
        return await self.anthropic.messages.batches.create(requests=[request(f"i{n}", t) for n, t in enumerate(texts)])

    async def create_openai(self, lines: list[Any], endpoint: Any = "/v1/chat/completions") -> Any:
        """Upload lines as a batch file and create a batch from it."""
        uploaded = await self.openai.files.create(file=("in.jsonl", jsonl(lines)), purpose="batch")
        return await self.openai.batches.create(
            input_file_id=uploaded.id, endpoint=endpoint, completion_window="24h", metadata={"run": "r1"}
        )

    async def anthropic_results(self, batch_id: str) -> dict[str, Any]:
        """Collect results by custom id."""
        return {line.custom_id: line.result async for line in await self.anthropic.messages.batches.results(batch_id)}

    async def openai_lines(self, file_id: str | None) -> list[dict[str, Any]]:
        """Collect the lines of a result file."""
        assert file_id is not None
        content = (await self.openai.files.content(file_id)).content
        return [json.loads(line) for line in content.split(b"\n") if line.strip()]


def request(custom_id: str, text: str, **params: Any) -> Any:
    """Write one request of a message batch."""
    body = {"model": MODEL, "max_tokens": 64, "messages": [{"role": "user", "content": text}]}
    return {"custom_id": custom_id, "params": body | params}


def chat_line(custom_id: str, text: str, url: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
    """Write one line of an OpenAI batch file."""
    content = {"model": GPT, "messages": [{"role": "user", "content": text}]} | body
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": content}


def jsonl(lines: list[Any]) -> bytes:
    """Write lines; bytes go in as they are."""
    return b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines)


@pytest.fixture
def start() -> Iterator[Callable[..., SimulatorThread]]:
    """Start simulators with a stopped clock; they stop with the test."""
    running: list[SimulatorThread] = []

    def begin(**settings: Any) -> SimulatorThread:
        sim = SimulatorThread(SimulatorConfig(**({"speed": 0.0} | settings)))
        sim.start()
        running.append(sim)
        return sim

    yield begin
    for sim in running:
        sim.stop()


@pytest.fixture
async def bench_of(start: Callable[..., SimulatorThread]) -> AsyncIterator[Callable[..., Bench]]:
    """Make benches with settings of one's own."""
    benches: list[Bench] = []

    def make(**settings: Any) -> Bench:
        benches.append(Bench(start(**settings)))
        return benches[-1]

    yield make
    for bench in benches:
        await bench.anthropic.close()
        await bench.openai.close()


@pytest.fixture
def bench(bench_of: Callable[..., Bench]) -> Bench:
    """A bench with the defaults."""
    return bench_of()
