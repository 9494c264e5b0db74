"""Both adapters against the simulator, behind one face: what differs between the providers is data here."""

from __future__ import annotations

import contextlib
import io
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from batchctl.core.errors import ProviderError
from batchctl.core.model import Answer
from batchctl.providers import registry
from batchctl.providers.base import BatchCheck, Created, Phase, Submission
from batchctl.simulator import SimulatorConfig, SimulatorThread

KEY = "sk-contract-0123456789"
MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-5-mini"}
SENDS = {"anthropic": "anthropic.batches.create", "openai": "openai.files.upload"}
SYNC_CALLS = {"anthropic": "anthropic.messages", "openai": "openai.chat.completions"}
ENDED = 200.0  # simulated seconds in which a batch of the default settings ends


@dataclass
class Bench:
    """One adapter, its format and its simulator."""

    name: str
    sim: SimulatorThread
    provider: Any
    uploads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.form = registry.request_format(self.name)

    def body(self, prompt: str) -> bytes:
        """One request body."""
        body = self.form.body(
            endpoint=self.form.default_endpoint,
            model=MODELS[self.name],
            prompt=prompt,
            system=None,
            max_tokens=64,
            params={},
        )
        return msgspec.json.encode(body)

    def submission(self, prompts: list[str], key: str = "bc-key-1", **more: Any) -> Submission:
        """A batch of these prompts; ids are i0, i1 and so on."""
        endpoint = self.form.default_endpoint
        lines = b"".join(
            self.form.head(f"i{number}", endpoint) + self.body(prompt) + b"}\n" for number, prompt in enumerate(prompts)
        )
        return Submission(
            key=key,
            requests=len(prompts),
            size=len(lines),
            endpoint=endpoint,
            open_lines=lambda: io.BytesIO(lines),
            intent_at=more.pop("intent_at", None) or datetime.now(UTC),
            **more,
        )

    async def submit(self, submission: Submission) -> Created:
        """Submit, noting uploads."""
        created: Created = await self.provider.submit(submission, self.uploads.append)
        return created

    async def refused(self, submission: Submission) -> ProviderError:
        """The error of a submit that must fail, checked for leaks."""
        with pytest.raises(ProviderError) as caught:
            await self.submit(submission)
        return harmless(caught.value)

    async def ended(self, batch_id: str) -> BatchCheck:
        """Let time pass and look at the ended batch."""
        for _ in range(3):
            self.sim.advance(ENDED)
        check: BatchCheck = await self.provider.check(batch_id)
        assert check.phase is Phase.ENDED
        return check

    async def lines(self, check: BatchCheck) -> list[bytes]:
        """All result lines."""
        data = b"".join([chunk async for chunk in self.provider.results(check)])
        assert data.endswith(b"\n")
        return [line for line in data.split(b"\n") if line]

    async def answers(self, check: BatchCheck) -> dict[str, Answer]:
        """All answers by custom id."""
        return {answer.custom_id: answer for answer in map(self.form.parse_result, await self.lines(check))}

    def calls(self, endpoint: str) -> int:
        """How often one endpoint was called; `*` stands for the provider's name."""
        return int(self.sim.stats()["calls"].get(endpoint.replace("*", self.name), 0))

    def fault(self, endpoint: str, **action: Any) -> None:
        """Make calls of one endpoint go wrong."""
        self.sim.set_faults({"calls": [{"endpoint": endpoint.replace("*", self.name), **action}]})


def harmless(error: ProviderError) -> ProviderError:
    """An error whose text neither holds the key nor runs over lines."""
    for text in (str(error), repr(error), error.hint or ""):
        assert KEY not in text
        assert KEY[-8:] not in text
        assert "\n" not in text
        assert "<html" not in text
    assert len(error.message) <= 500
    return error


only_anthropic = pytest.mark.parametrize("name", ["anthropic"], indirect=True)
only_openai = pytest.mark.parametrize("name", ["openai"], indirect=True)

MakeBench = Callable[..., Bench]


@pytest.fixture(params=["anthropic", "openai"])
def name(request: pytest.FixtureRequest) -> str:
    """The provider under test."""
    return str(request.param)


@pytest.fixture
async def make_bench(name: str) -> AsyncIterator[MakeBench]:
    """Makes benches that are closed at the end."""
    async with contextlib.AsyncExitStack() as stack:

        def make(provider: str = name, *, key: str = KEY, faults: dict[str, Any] | None = None, **config: Any) -> Bench:
            config.setdefault("speed", 0.0)
            sim = stack.enter_context(SimulatorThread(SimulatorConfig(faults=faults or {}, **config)))
            base_url = {"anthropic": sim.anthropic_base_url, "openai": sim.openai_base_url}[provider]
            adapter = registry.batch_provider(provider, base_url=base_url, api_key=key)
            stack.push_async_callback(adapter.aclose)
            return Bench(provider, sim, adapter)

        yield make


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    """A bench with default settings."""
    return make_bench()
