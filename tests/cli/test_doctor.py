"""`doctor`: what is wrong is named, changed by nothing without --repair, and mended where it can be."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from batchctl.simulator.answers import answer
from tests.cli.passes import LATER, pass_until_quiet
from tests.conftest import Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
DAY = 86_400.0


def done(desk: Desk, items: int = 6, *more: str) -> Desk:
    """A run that is done, with one failed item."""
    desk.simulator.set_faults({"items": [{"custom_id": "i2", "kind": "invalid_request"}]})
    desk.start("submit", desk.items(items), *more)
    pass_until_quiet(desk, passes=2)
    assert desk.balanced()["state"] == "done"
    return desk


def snapshot(desk: Desk) -> dict[Path, bytes]:
    """Every file of the desk but those a mere look may touch."""
    return {
        path: path.read_bytes()
        for path in desk.folder.rglob("*")
        if path.is_file() and path.name != "lock" and not path.name.endswith(("-wal", "-shm"))
    }


def mended(desk: Desk, *words: str) -> None:
    """The trouble is named and nothing changed; then it is mended, and all answers are where they belong."""
    before = snapshot(desk)
    found = desk("doctor", code=1).out
    for word in words:
        assert word in found
    assert snapshot(desk) == before
    assert "[mended:" in desk("doctor", "--repair").out
    assert desk("doctor").out == ""
    desk.balanced()
    for line in desk.lines("results.jsonl"):
        assert line["text"] == answer(f"Answer this: text of item {line['id'][1:]}")
    ordered = desk("results", "r", "--ordered").rows
    assert [line["id"] for line in ordered] == sorted((line["id"] for line in ordered), key=lambda id_: int(id_[1:]))


@PROVIDERS
def test_a_sound_run_has_nothing_wrong(make_desk: MakeDesk, provider: str) -> None:
    """Exit 0 and no findings, before, during and after a run."""
    desk = make_desk(provider)
    desk.start("submit", desk.items(3), "--max-requests", "2")
    assert "nothing is wrong" in desk("doctor", "r").err
    pass_until_quiet(desk, passes=2)
    assert desk("doctor").out == ""
    desk("doctor", "nobody", code=2)


@PROVIDERS
@pytest.mark.parametrize("file", ["results.jsonl", "errors.jsonl"])
def test_a_missing_file_is_written_anew(make_desk: MakeDesk, provider: str, file: str) -> None:
    """Answers come from the provider again, errors from the state file; nothing is sent."""
    desk = done(make_desk(provider))
    creates = desk.creates()
    (desk.folder / "out" / file).unlink()
    mended(desk, f"{file} is missing")
    assert desk.creates() == creates


@PROVIDERS
def test_a_shorter_file_gets_its_lines_back(make_desk: MakeDesk, provider: str) -> None:
    """A file restored from an older copy is completed; what was there is kept (field report 166)."""
    desk = done(make_desk(provider))
    path = desk.folder / "out" / "results.jsonl"
    cut = path.read_bytes()[:-150]
    path.write_bytes(cut)
    desk.start("submit", desk.items(6), code=1)
    mended(desk, "shorter than counted", "gone")
    assert [old.read_bytes() for old in path.parent.glob("results.jsonl.damaged-*")] == [cut]


@pytest.mark.parametrize("broken", [b'{"id": "i3", "out', b"\xff\xfe", b"[" * 5_000])
def test_a_damaged_middle_line_is_named_by_number(make_desk: MakeDesk, broken: bytes) -> None:
    """The line number tells where; only that line is replaced (field report 166)."""
    desk = done(make_desk())
    path = desk.folder / "out" / "results.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[2] = broken
    path.write_bytes(b"\n".join(lines) + b" " * 400 + b"\n")
    mended(desk, "results.jsonl line 3", "damaged")


def test_a_foreign_line_is_named_and_put_aside(make_desk: MakeDesk) -> None:
    """A line that belongs to no item, and one that stands twice, leave the file."""
    desk = done(make_desk())
    path = desk.folder / "out" / "results.jsonl"
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(b'{"id":"stranger"}\n' + first + b"\n" + first + b"\n" + rest)
    before = desk("doctor", code=1).out
    assert "line 1, 3: belongs to no item there" in before
    desk("doctor", "--repair")
    assert desk("doctor").out == ""
    desk.balanced()


def test_a_foreign_line_at_the_end_of_an_open_run_is_put_aside(make_desk: MakeDesk) -> None:
    """What somebody appended stops the run, by name; repaired, the run goes on and every item has one line."""
    desk = make_desk()
    desk.start("submit", desk.items(4), "--max-requests", "2", "--max-queued-requests", "2")
    desk.simulator.advance(LATER)
    desk("poll")
    with (desk.folder / "out" / "results.jsonl").open("ab") as file:
        file.write(b'{"id":"zz"}\n')
    desk.simulator.advance(LATER)
    assert "a line for item 'zz' does not belong there" in desk("poll", code=1).err
    assert "line 3: belongs to no item there" in desk("doctor", "--repair").out
    assert desk("doctor").out == ""
    pass_until_quiet(desk)
    assert desk.balanced()["counts"]["succeeded"] == 4


def test_answers_that_are_gone_everywhere_stay_named(make_desk: MakeDesk) -> None:
    """Past the provider's retention nothing is invented and nothing is sent again; the rest goes on."""
    desk = done(make_desk())
    path = desk.folder / "out" / "results.jsonl"
    kept = path.read_bytes()
    path.write_bytes(b"")
    desk.simulator.advance(40 * DAY)
    assert "no longer has them" in desk("doctor", "--repair", code=1).out
    assert "gone" in desk("doctor", code=1).out
    assert desk.status()["counts"]["succeeded"] == 5
    path.write_bytes(kept)
    desk("doctor", "--repair")
    assert desk("doctor").out == ""
    desk.balanced()


def test_a_torn_tail_and_leftovers_are_cleared(make_desk: MakeDesk) -> None:
    """What a killed process left is named, then counted or removed (field reports 164, 173)."""
    desk = done(make_desk())
    with (desk.folder / "out" / "results.jsonl").open("ab") as file:
        file.write('{"id":"i9","text":"é'.encode()[:-1])
    (desk.folder / "out" / ".manifest.json.part").write_bytes(b"{")
    downloads = desk.folder / "state" / "r" / "downloads"
    downloads.mkdir(exist_ok=True)
    (downloads / "batch-1.jsonl.part").write_bytes(b"{")
    mended(desk, "not counted yet", ".manifest.json.part", "batch-1.jsonl.part")


@PROVIDERS
def test_a_restored_older_state_file_gets_its_batches_back(make_desk: MakeDesk, provider: str) -> None:
    """Batches created after the copy are found in the provider's lists, by key or by custom ids (field report 181)."""
    desk = make_desk(provider)
    desk.start("submit", desk.items(6), "--max-requests", "2", "--max-queued-requests", "2")
    state = desk.folder / "state.db"
    shutil.copy(state, desk.folder / "older.db")
    for _ in range(2):
        desk.simulator.advance(LATER)
        desk("poll")
    assert desk.creates() == 3
    desk.simulator.advance(LATER)
    for side in ("", "-wal", "-shm"):
        state.with_name(state.name + side).unlink(missing_ok=True)
    shutil.copy(desk.folder / "older.db", state)
    for name in ("results.jsonl", "errors.jsonl"):
        (desk.folder / "out" / name).write_bytes(b"")
    assert desk("doctor", code=1).out.count("is ours, but not in the state file") == 2
    assert desk("doctor", "--repair").out.count("[mended: taken in") == 2
    desk("poll")
    assert desk.creates() == 3
    assert desk.balanced()["counts"] == {"planned": 6, "succeeded": 6, "failed": 0, "open": 0}


def test_somebody_elses_batches_are_left_alone(make_desk: MakeDesk) -> None:
    """Another run of the same input in the same account has the same ids, and is not taken."""
    desk = make_desk()
    items = desk.items(3)
    desk.start("submit", items)
    other = desk.folder / "other.db"
    desk("--state", str(other), "submit", items, "--provider", "anthropic", "--model", "claude-sonnet-4-5",
         "--prompt", desk.prompt, "--name", "o", "--out", str(desk.folder / "o"))  # fmt: skip
    desk.simulator.advance(LATER)
    assert desk("doctor").out == ""


def test_a_batch_of_waiting_items_is_for_a_person(make_desk: MakeDesk) -> None:
    """Own ids may be anybody's: what no note tells of is named, not taken; a person may take it by hand."""
    desk = make_desk()
    items = desk.items(4)
    desk.start("submit", items, *("--max-requests", "2", "--max-queued-requests", "2"))
    copy = Path(shutil.copytree(desk.folder, desk.folder.with_name("copy")))
    desk.simulator.advance(LATER)
    desk("poll")  # sends the second batch
    desk.simulator.advance(LATER)
    shutil.rmtree(desk.folder)
    copy.rename(desk.folder)  # state and notes are older
    said = desk("doctor", "--repair", code=1).out
    assert "it may be ours, if an older copy of everything was put back" in said
    ids = {entry["batch_id"] for entry in desk.simulator.ledger()}
    (lost,) = ids - {row["batch_id"] for row in desk("batches", "r", "--json").rows}
    assert f"adopt r {lost} --batch 2` takes it" in said
    desk("adopt", "r", lost, "--batch", "2")
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 4
    assert desk.creates() == 2


def test_an_unused_upload_is_deleted(make_desk: MakeDesk) -> None:
    """An input file whose create never came is deleted once nothing waits for it (field report 63)."""
    desk = make_desk("openai")
    desk.start("submit", desk.items(2))
    (key,) = [file["filename"] for file in desk.simulator.state()["files"] if file["filename"].startswith("bc")]
    stale = key.rpartition("-")[0] + "-1.jsonl"
    upload(desk, stale)
    assert "is used by no batch" in desk("doctor", code=1).out
    desk("doctor", "--repair")
    assert stale not in [file["filename"] for file in desk.simulator.state()["files"]]
    assert desk("doctor").out == ""


def upload(desk: Desk, name: str) -> None:
    """Put an input file into the account, as a process that died before its create did."""
    import openai

    with openai.OpenAI(base_url=desk.simulator.openai_base_url, api_key="k", max_retries=0) as client:
        client.files.create(file=(name, b"{}\n", "application/jsonl"), purpose="batch")


def test_a_start_that_died_is_cleared(make_desk: MakeDesk) -> None:
    """Rows and files of a plan that never was accepted are removed."""
    desk = make_desk()
    desk.start("submit", desk.items(1))
    dead = desk.folder / "state" / "dead"
    dead.mkdir()
    (dead / "spool.jsonl").write_bytes(b"{}\n")
    (dead / "bad.jsonl").write_bytes(b"")
    assert "its start died" in desk("doctor", code=1).out
    desk("doctor", "--repair")
    assert not (dead / "spool.jsonl").exists()
    assert desk("doctor").out == ""


def corrupt(state: Path, page: int, size: int = 4096) -> bytes:
    """Overwrite one page of a database; returns the file as it then is."""
    data = bytearray(state.read_bytes())
    data[page * size : (page + 1) * size] = b"\x5a" * size
    state.write_bytes(data)
    return bytes(data)


def test_a_damaged_database_is_rebuilt_beside_and_kept(make_desk: MakeDesk) -> None:
    """The damaged file is kept aside; a checked one takes its place only when the books balance (field report 185)."""
    import sqlite3

    desk = done(make_desk(), 400)
    state = desk.folder / "state.db"
    with sqlite3.connect(state) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'events_run'").fetchone()
    database.close()
    damaged = corrupt(state, page - 1)
    found = desk("doctor", code=1)
    assert "is damaged" in found.out
    assert state.read_bytes() == damaged
    assert "[mended:" in desk("doctor", "--repair").out
    aside = [path for path in desk.folder.glob("state.db.damaged-*") if not path.name.endswith(("-wal", "-shm"))]
    assert [path.read_bytes() for path in aside] == [damaged]
    assert desk("doctor").out == ""
    assert desk.balanced()["counts"]["succeeded"] == 399


@pytest.mark.parametrize("damage", ["header", "cut", "empty pages"])
def test_a_database_that_cannot_be_rebuilt_is_never_replaced(make_desk: MakeDesk, damage: str) -> None:
    """Where rows are lost the file stays as it is, exit 1 with the way out (field report 181)."""
    desk = done(make_desk(), 400)
    state = desk.folder / "state.db"
    data = state.read_bytes()
    broken = {
        "header": b"\0" * 200 + data[200:],
        "cut": data[: len(data) // 8],
        "empty pages": data[: 4096 * 2] + b"\0" * (len(data) - 4096 * 2),
    }[damage]
    state.write_bytes(broken)
    assert "copy of the state file back" in desk("doctor", "--repair", code=1).out
    assert state.read_bytes() == broken
    assert "doctor" in desk("status", code=7).err


def test_another_programs_database_is_left_alone(make_desk: MakeDesk) -> None:
    """It is no state file, so there is nothing to repair."""
    import sqlite3

    desk = make_desk()
    state = desk.folder / "state.db"
    with sqlite3.connect(state) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    before = state.read_bytes()
    desk("doctor", "--repair", code=7)
    assert state.read_bytes() == before


def test_no_state_file_is_said(make_desk: MakeDesk) -> None:
    """`doctor` reads; it creates nothing."""
    desk = make_desk()
    desk("doctor", code=2)
    assert list(desk.folder.iterdir()) == []


def test_findings_are_safe_on_a_terminal(make_desk: MakeDesk) -> None:
    """Ids with escapes are shown, not obeyed."""
    desk = make_desk()
    desk.start("submit", desk.items([{"id": "\x1b[31mred", "text": "x"}]))
    desk.simulator.advance(LATER)
    desk("poll")
    (desk.folder / "out" / "results.jsonl").unlink()
    assert "\x1b" not in desk("doctor", code=1).out
    assert json.loads(json.dumps(desk("doctor", "--repair").out))
