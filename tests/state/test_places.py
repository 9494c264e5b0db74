"""Where a run's results are after its project was moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchctl.state.places import present_place


@pytest.mark.parametrize(
    ("out", "there", "found"),
    [
        ("old/runs/a", ["old/runs/a"], "old/runs/a"),
        ("old/runs/a", ["old/runs/a", "new/runs/a"], "new/runs/a"),
        ("old/runs/a", ["new/runs/a"], "new/runs/a"),
        ("old/runs/a", [], "new/runs/a"),
        ("elsewhere/a", ["elsewhere/a"], "elsewhere/a"),
        ("elsewhere/a", [], "elsewhere/a"),
    ],
)
def test_results_move_with_their_project(tmp_path: Path, out: str, there: list[str], found: str) -> None:
    """The folder beside the moved state file, unless only the old one is there; what stood elsewhere stays there."""
    for place in there:
        (tmp_path / place).mkdir(parents=True)
    place = present_place(str(tmp_path / out), str(tmp_path / "old/state"), tmp_path / "new/state")
    assert place == str(tmp_path / found)


def test_what_was_not_moved_stays(tmp_path: Path) -> None:
    """The same folder of the state file, an object store, and a state file of nowhere."""
    home = tmp_path / "state"
    assert present_place(str(tmp_path / "runs/a"), str(home), home) == str(tmp_path / "runs/a")
    assert present_place("s3://bucket/a", str(home), tmp_path / "other") == "s3://bucket/a"
    assert present_place("/runs/a", "", home) == "/runs/a"
