"""Address and headers of the sync lane against those of the SDKs' own clients."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from batchctl.providers.targets import anthropic_target, openai_target

KEY = "sk-a-key-of-some-length"
OURS = "user-agent"


def of_anthropic(base_url: str | None) -> tuple[str, dict[str, object]]:
    """What Anthropic's client would send."""
    from anthropic import AsyncAnthropic

    client = AsyncAnthropic(base_url=base_url, api_key=KEY)
    return str(client.base_url), {**client.default_headers, **client.auth_headers}


def of_openai(base_url: str | None) -> tuple[str, dict[str, object]]:
    """What OpenAI's client would send."""
    from openai import AsyncOpenAI

    client = AsyncOpenAI(base_url=base_url, api_key=KEY)
    return str(client.base_url), {**client.default_headers, **client.auth_headers}


@pytest.mark.parametrize("base_url", [None, "http://127.0.0.1:9/v1"])
@pytest.mark.parametrize("environment", [False, True])
@pytest.mark.parametrize(
    ("ours", "theirs", "name"),
    [(anthropic_target, of_anthropic, "ANTHROPIC"), (openai_target, of_openai, "OPENAI")],
    ids=["anthropic", "openai"],
)
def test_the_same_as_the_client(
    monkeypatch: pytest.MonkeyPatch,
    ours: Callable[[str | None, str], tuple[str, dict[str, str]]],
    theirs: Callable[[str | None], tuple[str, dict[str, object]]],
    name: str,
    base_url: str | None,
    environment: bool,
) -> None:
    """Whatever the SDK's own variables say is obeyed in the same way."""
    if environment:
        monkeypatch.setenv(f"{name}_BASE_URL", "https://gateway.example/llm/v1/")
        monkeypatch.setenv(f"{name}_CUSTOM_HEADERS", "X-Team: a:b\nnothing\n x-more :1 ")
        monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
        monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    url, headers = ours(base_url, KEY)
    their_url, sent = theirs(base_url)
    assert url.rstrip("/") == their_url.rstrip("/")
    wanted = {key.lower(): value for key, value in sent.items() if isinstance(value, str)}
    telemetry = [key for key in wanted if key.startswith("x-stainless-")]
    for key in (*telemetry, OURS):
        del wanted[key]
    assert {key.lower(): value for key, value in headers.items() if key.lower() != OURS} == wanted


def test_the_sync_lane_needs_no_sdk() -> None:
    """Neither SDK is imported to open the session: a restart of a million items would wait for it."""
    code = (
        "import asyncio, sys\n"
        "from batchctl.providers.registry import sync_provider\n"
        "async def main():\n"
        "    for name in ('anthropic', 'openai'):\n"
        "        provider = sync_provider(name, base_url='http://127.0.0.1:9', api_key='sk-none-at-all')\n"
        "        try:\n"
        "            await provider.complete('a', '/v1/x', b'{}', timeout=5)\n"
        "        except Exception as error:\n"
        "            assert 'no answer' in str(error), error\n"
        "        await provider.aclose()\n"
        "asyncio.run(main())\n"
        "assert not {'anthropic', 'openai'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
