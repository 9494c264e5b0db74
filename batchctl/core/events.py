"""Events: what a verb says while it works. Terminal, plain lines, log file and the events table are its readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class Level(IntEnum):
    """How loud an event is."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened.

    Args:
        kind: a dotted name that does not change, such as `batch.submitted`.
        text: one line for people.
        data: JSON-ready details; never a payload, never a secret.
        batch: the batch's number inside the run, where the event is about one.
    """

    kind: str
    text: str
    run: str | None = None
    batch: int | None = None
    level: Level = Level.INFO
    data: Mapping[str, Any] = field(default_factory=dict)


Emit = Callable[[Event], None]
"""Takes an event; must not raise and must not block for long."""
