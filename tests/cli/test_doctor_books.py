"""`doctor --repair`: counters from their rows, requests from an input that is unchanged; what is lost is named."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.passes import LATER, pass_until_quiet
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
TABLES = ("runs", "items", "batches", "outcomes", "attempts")
FAULTS = {
    "items": [
        {"custom_id": "i2", "kind": "invalid_request"},
        {"custom_id": "i3", "kind": "api_error", "first_n_attempts": 1},
    ]
}


def change(desk: Desk, sql: str) -> None:
    """Something else changes the state file."""
    with sqlite3.connect(desk.folder / "state.db") as database:
        assert database.execute(sql).rowcount > 0
    database.close()


def rows(desk: Desk) -> dict[str, list[Any]]:
    """Everything in the state file but events and times of change."""
    database = sqlite3.connect(desk.folder / "state.db")
    database.row_factory = sqlite3.Row
    found = {
        table: [
            {key: value for key, value in dict(row).items() if key not in ("updated_at", "finished_at", "collected_at")}
            for row in database.execute(f"SELECT * FROM {table}")
        ]
        for table in TABLES
    }
    database.close()
    return found


def half_done(desk: Desk) -> Desk:
    """Two batches collected, one with an item that waits to be sent again."""
    desk.start("submit", desk.items(5), "--max-requests", "3")
    desk.simulator.advance(LATER)
    desk("poll")
    return desk


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("UPDATE runs SET planned = 4", "planned is 4"),
        ("UPDATE runs SET succeeded = 1, failed = 0", "succeeded is 1"),
        ("UPDATE runs SET results_bytes = 7", "ends at byte 7"),
        ("UPDATE runs SET errors_bytes = 0", "errors.jsonl ends at byte 0"),
        ("UPDATE batches SET succeeded = 9, errored = 0", "succeeded is 9"),
        ("UPDATE outcomes SET count = count + 1", "recorded"),
        ("DELETE FROM outcomes", "0 recorded"),
        ("UPDATE batches SET first_seq = last_seq", "outside its"),
    ],
)
def test_counters_come_back_from_the_items(make_desk: MakeDesk, sql: str, said: str) -> None:
    """Each counter that was changed is named, and counted anew to what it was."""
    desk = half_done(make_desk(faults=FAULTS))
    if "first_seq" in sql:
        desk("resubmit", "r")
        desk.start("submit", desk.items(5, "more.jsonl"), "--out", str(desk.folder / "b"), name="b")
    before = rows(desk)
    change(desk, sql)
    assert said in desk("doctor", "r" if "first_seq" not in sql else "b", code=1).out
    assert "counted anew" in desk("doctor", "--repair").out
    assert desk("doctor").out == ""
    if "first_seq" not in sql:
        assert rows(desk) == before


def test_an_item_that_a_collected_batch_still_holds_is_read_again(make_desk: MakeDesk) -> None:
    """Its answer is fetched, not bought."""
    desk = half_done(make_desk())
    path = desk.folder / "out" / "results.jsonl"
    line = path.read_bytes().split(b"\n")[-2] + b"\n"
    change(desk, "UPDATE items SET state = 'open', outcome = NULL, out_offset = NULL, out_length = NULL"
                 " WHERE seq = (SELECT seq FROM items ORDER BY out_offset DESC LIMIT 1)")  # fmt: skip
    change(desk, f"UPDATE runs SET results_bytes = results_bytes - {len(line)}")
    path.write_bytes(path.read_bytes()[: -len(line)])
    assert "still wait for it" in desk("doctor", code=1).out
    desk("doctor", "--repair")
    desk("poll")
    assert desk("doctor").out == ""
    assert desk.balanced()["counts"]["succeeded"] == 5
    assert desk.creates() == 2


def test_lost_rows_are_never_counted_away(make_desk: MakeDesk) -> None:
    """A run with fewer items than planned stays named, with the way out."""
    desk = half_done(make_desk())
    change(desk, "DELETE FROM items WHERE seq = 5")
    ran = desk("doctor", "--repair", code=1)
    assert "planned is 5, but the items say 4 [by hand: rows are lost" in ran.out
    assert desk.status()["counts"]["planned"] == 5


def spoil(kind: str, spool: Path) -> None:
    """Damage the spool."""
    data = spool.read_bytes()
    if kind == "gone":
        spool.unlink()
    elif kind == "cut":
        spool.write_bytes(data[: len(data) // 2])
    elif kind == "zeros":
        spool.write_bytes(data[:20] + b"\0" * (len(data) - 20))
    else:
        lines = data.split(b"\n")
        spool.write_bytes(b"\n".join([lines[1], lines[0], *lines[2:]]))


@pytest.mark.slow
@PROVIDERS
@pytest.mark.parametrize("kind", ["gone", "cut", "zeros", "swapped"])
@pytest.mark.parametrize("more", [[], ["--tag-ids"]], ids=["plain", "tagged"])
def test_requests_are_made_anew_from_the_same_input(
    make_desk: MakeDesk, provider: str, kind: str, more: list[str]
) -> None:
    """Byte for byte what they were, so that the items go out as if nothing had happened."""
    desk = make_desk(provider)
    items = [{"id": f'item {n}"/é', "text": f"text {n}"} for n in range(3)]  # ids no provider takes, of equal length
    items.append({"id": 'item 3"\\', "text": "text 3"})  # and one that only OpenAI takes
    desk.start("submit", desk.items(items), "--max-requests", "2", "--max-queued-requests", "2", *more)
    spool = desk.folder / "state" / "r" / "spool.jsonl"
    before = spool.read_bytes()
    spoil(kind, spool)
    found = desk("doctor", code=1).out
    assert "3 open items" in found or "4 open items" in found or kind in ("swapped", "cut")
    assert "[--repair: made anew" in found
    assert "[mended: made anew" in desk("doctor", "--repair").out
    assert spool.read_bytes() == before
    assert spool.stat().st_mode & 0o077 == 0
    pass_until_quiet(desk, passes=3)
    assert desk.balanced()["counts"]["succeeded"] == 4


def test_a_request_is_not_made_from_another_input(make_desk: MakeDesk) -> None:
    """A changed or deleted input is named; what is lost is named item by item, and no other text is sent."""
    desk = make_desk(faults={"items": [{"kind": "api_error", "first_n_attempts": 1}]})
    items = Path(desk.items(3))
    desk.start("submit", str(items))
    desk.simulator.advance(LATER)
    desk("poll")
    data = items.read_bytes()
    (desk.folder / "state" / "r" / "spool.jsonl").unlink()
    items.write_bytes(data.replace(b"text of", b"TEXT of"))
    ran = desk("doctor", "--repair", code=1)
    assert "requests of 3 open items are not there: 'i1', 'i2', 'i3' [by hand: the input" in ran.out
    assert "has changed" in ran.out
    items.unlink()
    assert "is gone: put it back as it was" in desk("doctor", "--repair", code=1).out
    assert "doctor" in desk("resubmit", "r", code=1).err
    assert desk.creates() == 1
    items.write_bytes(data)
    desk("doctor", "--repair")
    desk("resubmit", "r")
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 3


def test_a_finished_run_needs_no_spool(make_desk: MakeDesk) -> None:
    """Nothing is wrong where nothing will be sent."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    desk.simulator.advance(LATER)
    desk("poll")
    (desk.folder / "state" / "r" / "spool.jsonl").unlink()
    assert desk("doctor").out == ""


@pytest.mark.parametrize("verb", ["poll", "fanout"])
def test_a_damaged_request_is_never_sent(make_desk: MakeDesk, verb: str) -> None:
    """Requests that are not those that were written down stop the run before the provider hears of them."""
    desk = make_desk(faults={"items": [{"kind": "api_error", "first_n_attempts": 1}]})
    desk.start("submit", desk.items(2))
    desk.simulator.advance(LATER)
    desk("poll")
    spool = desk.folder / "state" / "r" / "spool.jsonl"
    spoil("swapped", spool)
    accepted = len(desk.simulator.ledger())
    arguments = ["fanout", "--run", "r"] if verb == "fanout" else ["poll", "--resubmit", "r"]
    ran = desk(*arguments, code=1)
    assert "spool.jsonl" in ran.err
    assert "doctor` says what can be done" in ran.err
    assert len(desk.simulator.ledger()) == accepted
