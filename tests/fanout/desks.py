"""The command of the sync lane as the tests here give it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.conftest import MODELS, Desk, Ran

MakeDesk = Callable[..., Desk]
CALLS = {"anthropic": "anthropic.messages", "openai": "openai.chat.completions"}
AT_ONCE = {"retry-after-ms": "1"}


def arguments(desk: Desk, items: str, *more: str, name: str = "r") -> list[str]:
    """`fanout` with the usual options."""
    usual = ["--provider", desk.provider, "--model", MODELS[desk.provider], "--prompt", desk.prompt, "--name", name]
    return ["fanout", items, *usual, "--out", str(desk.folder / "out"), "--max-tokens", "64", *more]


def fanout(desk: Desk, items: str, *more: str, code: int | None = 0, name: str = "r") -> Ran:
    """Run `fanout` in this process."""
    return desk(*arguments(desk, items, *more, name=name), code=code)


def calls(desk: Desk) -> int:
    """How many calls reached the provider's ordinary endpoint."""
    return int(desk.simulator.stats()["calls"].get(CALLS[desk.provider], 0))


def fault(desk: Desk, **action: Any) -> None:
    """Make calls of the ordinary endpoint go wrong."""
    desk.simulator.set_faults({"calls": [{"endpoint": CALLS[desk.provider], **action}]})


def paid(desk: Desk) -> Counter[str]:
    """How often each request was answered, by its digest."""
    return Counter(entry["digest"] for entry in desk.simulator.ledger() if entry["outcome"] == "succeeded")
