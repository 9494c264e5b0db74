"""Answers of a shape nobody documented: a field of another type, missing, or absurd."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

ODD_SHAPES: dict[str, list[dict[str, Any]]] = {
    "list": [
        {"set": {"data.*.request_counts": None}},
        {"set": {"data.*.request_counts.processing": 0}},
        {"set": {"data.*.created_at": "soon"}},
        {"set": {"data.*.created_at": None}},
        {"set": {"data.*.metadata": None, "data.*.input_file_id": None}},
        {"set": {"data.*.metadata": {"batchctl_key": 5}}},
        {"set": {"has_more": True}},
        {"set": {"data": None}},
        {"reverse": ["data"]},
    ],
    "retrieve": [
        {"set": {"request_counts": None}},
        {"set": {"expires_at": "9999-12-31T23:59:59-14:00", "created_at": {}}},
        {"set": {"expires_at": 253402300799, "created_at": "1"}},
        {"set": {"request_counts": None, "output_file_id": None, "error_file_id": None}},
        {"set": {"results_url": None}},
    ],
    "results": [
        {"set": {"result.message.usage.input_tokens": 2**63, "response.body.usage.prompt_tokens": 2**63}},
        {"set": {"result.message.usage": "many", "response.body.usage": ["many"]}},
        {"set": {"result.message.stop_reason": 5, "response.status_code": "200"}},
        {"set": {"result.message.content": {}, "response.body.choices": {}}, "line": 1},
        {"set": {"custom_id": 5}, "line": 1},
    ],
}
"""Answers of another shape, by what is asked for; each is given once, as a server in trouble may."""


def odd_shapes(chance: random.Random, provider: str) -> Iterator[dict[str, Any]]:
    """Now and then one answer has wrongly typed, missing or absurd fields."""
    results = "anthropic.batches.results" if provider == "anthropic" else "openai.files.content"
    for asked, shapes in ODD_SHAPES.items():
        if chance.random() < 0.15:
            endpoint = results if asked == "results" else f"{provider}.batches.{asked}"
            yield {"endpoint": endpoint, "nth": chance.randint(1, 4), "action": "edit", **chance.choice(shapes)}
