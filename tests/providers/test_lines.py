"""Batch lines taken apart again for the sync lane, and what requests take of its limits."""

from __future__ import annotations

import msgspec
import pytest

from batchctl.core.limiter import Amounts
from batchctl.core.model import Usage
from batchctl.providers import registry


@pytest.mark.parametrize("name", registry.NAMES)
@pytest.mark.parametrize("item_id", ["plain", ',"params":', ',"body":', '"quoted" \\ , "url":"x"', "é🙂"])
def test_a_line_gives_its_body_back(name: str, item_id: str) -> None:
    """Endpoint and body are those the line was made of, whatever the id looks like."""
    form = registry.request_format(name)
    body = msgspec.json.encode({"model": "m", "input": ',"body":{"params": 1}'})
    line = form.head(item_id, form.default_endpoint) + body + b"}"
    assert form.split(line) == (form.default_endpoint, body)


@pytest.mark.parametrize(
    ("name", "charged"),
    [("anthropic", Amounts(1, 60, 7)), ("openai", Amounts(1, 107))],
)
def test_what_a_request_takes(name: str, charged: Amounts) -> None:
    """Each provider counts in its own way; input counts in both (field report 135)."""
    assert registry.request_format(name).charge(Usage(100, 7, cached_input_tokens=40)) == charged
