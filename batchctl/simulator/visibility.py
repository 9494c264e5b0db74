"""Eventual consistency on request: new batches and files that lists or retrieve do not show yet."""

from __future__ import annotations

from collections import Counter

from batchctl.simulator.batch import Batch
from batchctl.simulator.files import StoredFile

Sightings = Counter[tuple[str, str]]


def hidden_from_list(thing: Batch | StoredFile, sightings: Sightings, now: float) -> bool:
    """Tell whether a list leaves this out; each list call it is left out of counts."""
    return _hidden(thing, "list_lag", sightings, now)


def hidden_from_retrieve(thing: Batch, sightings: Sightings, now: float) -> bool:
    """Tell whether retrieve answers 404 for it (anthropic-sdk-python issue 1432)."""
    return _hidden(thing, "retrieve_404", sightings, now)


def _hidden(thing: Batch | StoredFile, fault: str, sightings: Sightings, now: float) -> bool:
    if now < thing.created_at + thing.effects.get(f"{fault}_seconds", 0.0):
        return True
    if sightings[thing.id, fault] < thing.effects.get(f"{fault}_calls", 0):
        sightings[thing.id, fault] += 1
        return True
    return False
