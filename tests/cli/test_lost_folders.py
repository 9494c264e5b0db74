"""Folders and files that were deleted: nothing is paid twice, and what is gone is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from tests.conftest import Desk

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
