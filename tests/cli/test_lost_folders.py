"""Folders and files that were deleted or moved: nothing is paid twice, and what is gone is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from tests.cli.passes import LATER
from tests.conftest import FAST, Desk, run_command

MakeDesk = Callable[..., Desk]


def lose_state(desk: Desk) -> None:
    """Delete the state file, as a clean-up of *.db files does."""
    for path in desk.folder.glob("state.db*"):
        path.unlink()


def test_a_lost_state_file_never_pays_twice(make_desk: MakeDesk) -> None:
    """The same command without its state file is refused while the run's folder is there, whatever else was started."""
    desk = make_desk()
    items = desk.items(3)
    desk.start("submit", items)
    lose_state(desk)
    ran = desk.start("submit", items, code=2)
    assert str(desk.folder / "state" / "r") in ran.err
    assert "doctor" in ran.err
    assert not (desk.folder / "state.db").exists()
    assert "r" in desk("doctor", code=2).err
    desk.start("submit", desk.items(1, "other.jsonl"), "--out", str(desk.folder / "other"), name="other")
    desk.start("submit", items, code=2)
    assert "does not know it" in desk("doctor", "--repair", code=1).out
    assert (desk.folder / "state" / "r" / "spool.jsonl").exists()
    assert desk.creates() == 2


def test_another_name_starts_over_on_purpose(make_desk: MakeDesk) -> None:
    """An explicit step is enough to buy the same items again."""
    desk = make_desk()
    items = desk.items(3)
    desk.start("submit", items)
    lose_state(desk)
    desk.start("submit", items, "--out", str(desk.folder / "again"), name="again")
    assert desk.creates() == 2


def test_the_output_folder_was_deleted(make_desk: MakeDesk) -> None:
    """Cancel still stops the batches, accept says what is gone, and doctor fetches it again."""
    desk = make_desk(faults={"batches": [{"nth": 2, "stuck": 0.5}]})
    desk.start("submit", desk.items(4), "--max-requests", "2")
    desk.simulator.advance(3600)
    desk("poll")
    shutil.rmtree(desk.folder / "out")
    assert "doctor --repair" in desk("accept", "r", code=1).err
    canceled = desk("cancel", "r")
    assert "results.jsonl is missing" in canceled.err
    assert [row["state"] for row in desk("batches", "r", "--json").rows] == ["collected", "canceling"]
    assert "the lines of 2 items are gone" in desk("doctor", "--repair").out
    desk.simulator.advance(3600)
    desk("poll")
    assert desk.balanced()["state"] == "canceled"
    assert {line["id"] for line in desk.lines("results.jsonl")} >= {"i1", "i2"}


@pytest.mark.parametrize("copied", [False, True])
def test_a_project_that_was_moved_finds_its_results(
    make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """State and results moved (or copied) together: the open run goes on there, and never in the old place."""
    desk = make_desk()
    old, new = desk.folder / "old", desk.folder / "new"
    old.mkdir()
    monkeypatch.chdir(old)
    items = desk.items(3)
    arguments = (items, "--provider", "anthropic", "--model", "claude-sonnet-4-5", "--prompt", desk.prompt, *FAST)
    assert run_command("submit", *arguments, "--name", "r").code == 0
    (shutil.copytree if copied else shutil.move)(str(old), str(new))
    monkeypatch.chdir(new)
    desk.simulator.advance(LATER)
    assert run_command("poll").code == 0
    assert len((new / "runs/r/results.jsonl").read_bytes().splitlines()) == 3
    assert len(run_command("results", "r").out.splitlines()) == 3
    assert run_command("run", *arguments, "--name", "r").code == 0
    assert str(new / "runs/r") in run_command("show", "r").out
    assert old.exists() == copied
    if copied:
        assert (old / "runs/r/results.jsonl").read_bytes() == b""
    assert desk.creates() == 1
