"""Providers by name, and what it costs to know them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from batchctl.core.errors import InputError
from batchctl.providers import registry


@pytest.mark.parametrize("make", [registry.request_format, registry.batch_provider, registry.sync_provider])
def test_an_unknown_provider_is_named_with_the_known_ones(make: type) -> None:
    """The way out is in the hint."""
    with pytest.raises(InputError) as caught:
        make("gemini")
    assert "anthropic, openai" in (caught.value.hint or "")


def test_formats_need_no_sdk() -> None:
    """Planning and collecting import neither SDK nor HTTP client; building an adapter imports no SDK yet."""
    code = (
        "import sys; from batchctl.providers import registry; "
        "registry.request_format('openai'); "
        "[registry.batch_provider(name, api_key='sk-0123456789') for name in registry.NAMES]; "
        "sys.exit(bool({'anthropic', 'openai', 'httpx2', 'aiohttp'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_both_lanes_say_the_same_limits() -> None:
    """An adapter and its format share one set of limits."""
    for name in registry.NAMES:
        assert registry.batch_provider(name, api_key="sk-0123456789").limits() is registry.request_format(name).limits()
