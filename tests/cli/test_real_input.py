"""Real messages of a bank's customers, where they lie beside the project: CSV, no ids, 77 categories, faults on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from batchctl.simulator.answers import answer
from tests.conftest import FAST, MODELS, Desk

MESSAGES = Path(__file__).resolve().parents[3] / "shared" / "data" / "banking77"
PROMPT = 'Categories: {{ categories }}\nAnswer with JSON: {"category": "…"}\n\nMessage: {{ text }}'
FAULTS = {
    "items": [
        {"probability": 0.02, "first_n_attempts": 1, "kind": "api_error"},
        {"probability": 0.01, "first_n_attempts": 1, "kind": "missing"},
        {"probability": 0.005, "kind": "invalid_request"},
    ],
    "batches": [{"nth": 2, "expire": 0.5, "expire_after": 3600}],
    "calls": [
        {"endpoint": "*.batches.create", "action": "drop", "when": "after", "nth": 2},
        {"endpoint": "*.batches.create", "action": "drop", "when": "before", "nth": 3},
        {"endpoint": "*.batches.retrieve", "action": "html", "status": 502, "every": 7},
    ],
}


@pytest.mark.slow
@pytest.mark.skipif(not MESSAGES.exists(), reason="the messages are not part of the project")
@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_each_message_gets_its_own_answer(make_desk: Callable[..., Desk], provider: str) -> None:
    """Every message is settled, each with the answer its own text asks for."""
    desk = make_desk(provider, FAULTS, speed=20_000)
    prompt = desk.folder / "prompt.txt"
    prompt.write_text(PROMPT, "utf-8")
    categories = MESSAGES / "categories.json"
    desk(
        "run", str(MESSAGES / "test.csv"),
        "--number-ids", "--var", f"categories=@{categories}", "--prompt", str(prompt),
        "--provider", provider, "--model", MODELS[provider], "--max-requests", "600", "--name", "r",
        "--out", str(desk.folder / "out"), *FAST, code=3,
    )  # fmt: skip
    counts = desk.balanced()["counts"]
    assert counts["planned"] == 3080
    assert counts["open"] == 0
    assert {line["outcome"] for line in desk.lines("errors.jsonl")} == {"errored"}
    texts = _texts()
    shown = json.dumps(json.loads(categories.read_bytes()), separators=(",", ":"))
    for line in desk.lines("results.jsonl")[:300]:
        asked = PROMPT.replace("{{ categories }}", shown).replace("{{ text }}", texts[int(line["id"]) - 1])
        assert line["text"] == answer(asked)


def _texts() -> list[str]:
    import csv

    with (MESSAGES / "test.csv").open(encoding="utf-8", newline="") as file:
        return [row["text"] for row in csv.DictReader(file)]
