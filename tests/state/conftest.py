"""A fresh store for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from batchctl.state.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the store is."""
    return tmp_path / "state" / "batchctl.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """An empty store, open to write."""
    with Store.open(path) as opened:
        yield opened
