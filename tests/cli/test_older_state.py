"""A copy of the state file is put back: nothing sent since then is sent again, and `doctor` brings all of it back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.passes import LATER
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
TAGS = pytest.mark.parametrize("tags", [(), ("--tag-ids",)], ids=["plain", "tagged"])
ONE_WAITS = ("--max-requests", "2", "--max-queued-requests", "2")


def copy_state(desk: Desk) -> Path:
    """A backup of the state file, made while nothing works on it."""
    return Path(shutil.copy(desk.folder / "state.db", desk.folder / "older.db"))


def put_back(desk: Desk) -> None:
    """The backup takes the place of the state file; result files and working folder stay as they are."""
    for path in desk.folder.glob("state.db*"):
        path.unlink()
    shutil.copy(desk.folder / "older.db", desk.folder / "state.db")


def end(desk: Desk, *, succeeded: int) -> None:
    """Pass after pass until the run is done; every answer is there, once."""
    for _ in range(6):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit", "--wait-limit", "0.3s", code=None)
    assert desk.balanced()["counts"]["succeeded"] == succeeded
    assert desk("doctor").out == ""


@pytest.mark.slow
@PROVIDERS
@TAGS
def test_a_batch_sent_since_then_is_not_sent_again(make_desk: MakeDesk, provider: str, tags: tuple[str, ...]) -> None:
    """It waits in the copy, and its create is in doubt like any other whose answer was lost."""
    desk = make_desk(provider)
    desk.start("submit", desk.items(6), *ONE_WAITS, *tags)
    copy_state(desk)
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.creates() == 2
    put_back(desk)
    (desk.folder / "out" / "results.jsonl").write_bytes(b"")
    said = desk("poll").err
    assert "batch 2 was sent at" in said
    assert desk.creates() == 2
    end(desk, succeeded=6)
    assert desk.creates() == 3


@pytest.mark.slow
@PROVIDERS
def test_the_other_lane_does_not_send_it_either(make_desk: MakeDesk, provider: str) -> None:
    """`fanout` takes batches that were never sent, and no others."""
    desk = make_desk(provider)
    desk.start("submit", desk.items(4), *ONE_WAITS)
    copy_state(desk)
    desk.simulator.advance(LATER)
    desk("poll")
    put_back(desk)
    (desk.folder / "out" / "results.jsonl").write_bytes(b"")
    desk("fanout", "--run", "r", code=None)
    assert len(desk.simulator.ledger()) == 4
    end(desk, succeeded=4)


@pytest.mark.slow
@PROVIDERS
@pytest.mark.parametrize("verb", ["cancel", "accept"])
def test_closing_the_run_forgets_no_batch(make_desk: MakeDesk, provider: str, verb: str) -> None:
    """`cancel` cancels a batch that waits in the copy but runs, and `accept` refuses while it may answer."""
    desk = make_desk(provider)
    desk.start("submit", desk.items(4), *ONE_WAITS)
    copy_state(desk)
    desk.simulator.advance(LATER)
    desk("poll")
    put_back(desk)
    (desk.folder / "out" / "results.jsonl").write_bytes(b"")
    desk(verb, "r", code=None)
    if verb == "accept":
        desk("poll")
    for _ in range(5):
        desk.simulator.advance(LATER)
        desk("poll", "--wait-limit", "0.3s", code=None)
    assert desk.creates() == 2
    succeeded = sum(entry["outcome"] == "succeeded" for entry in desk.simulator.ledger())
    assert desk.balanced()["counts"]["succeeded"] == succeeded
    assert {row["batch_id"] for row in desk.simulator.ledger()} == {
        row["batch_id"] for row in desk("batches", "r", "--json").rows
    }


@pytest.mark.slow
@PROVIDERS
@TAGS
@pytest.mark.parametrize("collected", [False, True], ids=["at the provider", "collected"])
def test_a_resubmission_sent_since_then_stops_the_run(
    make_desk: MakeDesk, provider: str, tags: tuple[str, ...], *, collected: bool
) -> None:
    """The copy has no row for its batch: exit 7 with the way out, nothing sent; `doctor` takes it in."""
    desk = make_desk(provider, {"items": [{"prompt_contains": "item 2", "kind": "api_error", "first_n_attempts": 1}]})
    desk.start("submit", desk.items(3), *tags)
    desk.simulator.advance(LATER)
    desk("poll")
    copy_state(desk)
    desk("resubmit", "r")
    desk.simulator.advance(LATER)
    if collected:
        desk("poll")
    put_back(desk)
    if collected:
        assert "is none of this run's" in desk("poll", "--resubmit", "r", code=1).err
    else:
        ran = desk("poll", "--resubmit", "r", code=7)
        assert "an older copy of it was put back" in ran.err
        assert "doctor --repair r" in ran.err
    assert desk.creates() == 2
    assert "is ours, but not in the state file" in desk("doctor", code=1).out
    assert "[mended: taken in" in desk("doctor", "--repair").out
    end(desk, succeeded=3)
    assert desk.creates() == 2


@pytest.mark.slow
def test_what_cannot_be_told_yet_stays_stopped(make_desk: MakeDesk) -> None:
    """Anthropic shows no ids before a batch has ended: until then nothing is sent, and doctor says why."""
    desk = make_desk(faults={"items": [{"custom_id": "i2", "kind": "api_error", "first_n_attempts": 1}]})
    desk.start("submit", desk.items(3))
    desk.simulator.advance(LATER)
    desk("poll")
    copy_state(desk)
    desk("resubmit", "r")
    put_back(desk)
    desk("resubmit", "r", code=7)
    assert "may be it" in desk("doctor", "--repair", "r", code=1).out
    desk("poll", "--resubmit", "r", code=7)
    desk.simulator.advance(LATER)
    desk("doctor", "--repair", "r")
    end(desk, succeeded=3)
    assert desk.creates() == 2


@pytest.mark.slow
@PROVIDERS
def test_a_sending_that_never_arrived_is_told(make_desk: MakeDesk, provider: str) -> None:
    """No list shows it, so `doctor` takes it back and the items go out."""
    endpoint = f"{provider}.batches.create"
    desk = make_desk(provider, {"items": [{"prompt_contains": "item 2", "kind": "api_error", "first_n_attempts": 1}]})
    desk.start("submit", desk.items(3))
    desk.simulator.advance(LATER)
    desk("poll")
    copy_state(desk)
    desk.simulator.set_faults({"calls": [{"endpoint": endpoint, "action": "drop", "when": "before", "times": 1}]})
    desk("resubmit", "r", code=None)
    put_back(desk)
    desk("resubmit", "r", code=7)
    assert any(desk("doctor", "--repair", "r", code=None).code == 0 for _ in range(50))
    desk("resubmit", "r")
    end(desk, succeeded=3)


@pytest.mark.slow
def test_a_folder_older_than_the_state_file_is_no_trouble(make_desk: MakeDesk) -> None:
    """The notes beside the state file may be gone, torn or of another time: the state file knows more."""
    desk = make_desk()
    desk.start("submit", desk.items(4), *ONE_WAITS)
    sent = desk.folder / "state" / "r" / "sent.jsonl"
    sent.write_bytes(sent.read_bytes()[:-9])
    assert sent.stat().st_mode & 0o077 == 0
    end(desk, succeeded=4)
    assert desk.creates() == 2


def test_the_notes_of_an_earlier_run_of_that_name_are_not_ours(make_desk: MakeDesk) -> None:
    """Whoever clears a run away but forgets its notes starts a new one, not an old one."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    for path in [*desk.folder.glob("state.db*"), desk.folder / "state" / "r" / "spool.jsonl"]:
        path.unlink()
    desk.start("submit", desk.items([{"id": f"i{n}", "text": f"new {n}"} for n in (1, 2)], "new.jsonl"))
    assert desk.creates() == 2
    assert desk("doctor").out == ""
    end(desk, succeeded=2)


@PROVIDERS
def test_a_failure_of_a_later_batch_is_read_back_in(make_desk: MakeDesk, provider: str) -> None:
    """The copy has the item with its first batch; its last error, from the second, stands in errors.jsonl already."""
    fault = {"prompt_contains": "item 2", "kind": "invalid_request"}
    desk = make_desk(provider, {"items": [fault | {"kind": "api_error", "first_n_attempts": 1}, fault]})
    desk.start("submit", desk.items(3), "--tag-ids")
    copy_state(desk)
    for _ in range(3):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit")
    assert desk.status()["counts"]["failed"] == 1
    put_back(desk)
    desk("doctor", "--repair", code=None)
    for _ in range(3):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit")
    assert desk.balanced()["counts"] == {"planned": 3, "succeeded": 2, "failed": 1, "open": 0}
    assert desk.creates() == 2
    assert desk("doctor").out == ""
