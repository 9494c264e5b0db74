"""The machine misbehaves: full disks, unwritable folders, locks, other people's files, inputs that vanish."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from batchctl.core.errors import HeldError
from batchctl.files.lock import RunLock
from tests.cli.passes import LATER, pass_until_quiet
from tests.cli.test_process import command as command_line
from tests.cli.test_process import holds, start_arguments, until
from tests.conftest import MODELS, Desk
from tests.torture.blows import Blow
from tests.torture.processes import KILLED, command, preload

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])


def struck(desk: Desk, *arguments: str, blow: Blow) -> tuple[int, str]:
    """Run one command as a process that is struck; its exit code and what it said."""
    preload()
    output = desk.folder / "said.txt"
    output.unlink(missing_ok=True)
    code = command(["--state", str(desk.folder / "state.db"), *arguments], {}, output, blow=blow)
    return code, output.read_text("utf-8")


@pytest.mark.slow
@PROVIDERS
@pytest.mark.parametrize(
    "blow", [Blow("write", 1, "full"), Blow("fsync", 1, "full"), Blow("fsync", 3, "full")], ids=str
)
def test_a_full_disk_while_collecting_is_named_and_loses_nothing(
    make_desk: MakeDesk, provider: str, blow: Blow
) -> None:
    """Exit 1 with the way out, no traceback, nothing sent; with room again every answer is there once."""
    desk = make_desk(provider)
    desk.start("submit", desk.items(6), "--max-requests", "2")
    desk.simulator.advance(LATER)
    creates = desk.creates()
    code, said = struck(desk, "poll", blow=blow)
    assert code in (1, 7)
    assert "hint:" in said
    assert "Traceback" not in said
    assert desk.creates() == creates
    pass_until_quiet(desk, passes=2)
    assert desk.balanced()["counts"]["succeeded"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_a_full_disk_while_planning_sends_nothing(make_desk: MakeDesk, nth: int) -> None:
    """A plan that could not be written is no run; the same command starts it anew."""
    desk = make_desk()
    items = desk.items(3)
    arguments = start_arguments(desk, items, "submit")
    code, said = struck(desk, *arguments, blow=Blow("fsync", nth, "full"))
    assert code in (1, 7)
    assert "Traceback" not in said
    assert desk.creates() == 0
    desk(*arguments)
    assert desk.creates() == 1
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 3


def test_an_output_folder_that_cannot_be_made_sends_nothing(make_desk: MakeDesk) -> None:
    """Found before anything is paid."""
    desk = make_desk()
    ran = desk("submit", desk.items(2), "--provider", "anthropic", "--model", MODELS["anthropic"],
               "--prompt", desk.prompt, "--name", "r", "--out", "/sys/batchctl/out", code=None)  # fmt: skip
    assert ran.code in (1, 2)
    assert "/sys/batchctl" in ran.err
    assert desk.creates() == 0


def test_a_log_file_on_a_full_disk_is_named(make_desk: MakeDesk) -> None:
    """The log is not worth a traceback, and no answer is lost for it."""
    desk = make_desk()
    ran = desk("--log-file", "/dev/full", *start_arguments(desk, desk.items(2), "submit"), code=None)
    assert "Traceback" not in ran.err
    assert ran.code in (0, 1)
    desk.start("submit", desk.items(2))
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 2


def test_readers_do_not_stop_a_writer(make_desk: MakeDesk) -> None:
    """A program that reads the state file for ever is not noticed (field report 183)."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    with sqlite3.connect(desk.folder / "state.db") as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM runs").fetchone()
        desk.simulator.advance(LATER)
        desk("poll")
    reader.close()
    assert desk.balanced()["state"] == "done"


@pytest.mark.slow
def test_a_writer_that_does_not_let_go_is_named(make_desk: MakeDesk) -> None:
    """Exit 7 after the busy time, with what to do; afterwards the same command goes on (field report 176)."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    desk.simulator.advance(LATER)
    with sqlite3.connect(desk.folder / "state.db", isolation_level=None) as writer:
        writer.execute("BEGIN IMMEDIATE")
        ran = desk("poll", code=7)
        writer.execute("ROLLBACK")
    writer.close()
    assert "held the state file" in ran.err
    desk("poll")
    assert desk.balanced()["state"] == "done"


@pytest.mark.parametrize("content", [b"\0" * 5000, b"SQLite format 3\0" + b"\xff" * 5000])
@pytest.mark.parametrize("verb", [["poll"], ["status"], ["resubmit"], ["doctor", "--repair"]])
def test_a_corrupt_state_file_is_left_as_it_is(make_desk: MakeDesk, content: bytes, verb: list[str]) -> None:
    """No command overwrites the only copy (field reports 181, 185)."""
    desk = make_desk()
    state = desk.folder / "state.db"
    state.write_bytes(content)
    ran = desk(*verb, code=None)
    assert ran.code == (1 if verb[0] == "doctor" else 7)
    assert "Traceback" not in ran.err
    assert state.read_bytes() == content


@pytest.mark.parametrize("verb", [["poll"], ["status"], ["doctor", "--repair"]])
def test_a_newer_state_file_is_left_as_it_is(make_desk: MakeDesk, verb: list[str]) -> None:
    """An older program touches nothing it does not know."""
    desk = make_desk()
    desk.start("submit", desk.items(1))
    state = desk.folder / "state.db"
    with sqlite3.connect(state) as database:
        database.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) VALUES ('batchctl', 'm999_later', '')"
        )
    database.close()
    before = state.read_bytes()
    assert "newer" in desk(*verb, code=7).err
    assert state.read_bytes() == before


@pytest.mark.slow
def test_a_killed_holder_holds_nothing(make_desk: MakeDesk) -> None:
    """The lock goes with the process, however it ends."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    process = subprocess.Popen(command_line(desk, "poll", "--wait"), stderr=subprocess.DEVNULL)
    lock = desk.folder / "state" / "r" / "lock"
    until(lambda: holds(process, lock), "the poll holds the run")
    process.kill()
    process.wait(timeout=30)
    desk.simulator.advance(LATER)
    desk("poll", "r")
    assert desk.balanced()["state"] == "done"


@pytest.mark.slow
def test_two_starts_in_the_same_second_make_one_run(make_desk: MakeDesk) -> None:
    """One of two cron jobs does the work, the other leaves at once (field reports 169, 176, 177)."""
    desk = make_desk()
    arguments = command_line(desk, *start_arguments(desk, desk.items(4), "submit"))
    processes = [subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(3)]
    codes = sorted(process.wait(timeout=60) for process in processes)
    assert codes[0] == 0
    assert set(codes) <= {0, 5}
    assert desk.creates() == 1
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 4


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda path: path.unlink(), "is missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-5]), "shorter than recorded"),
        (lambda path: path.write_bytes(b"x" * path.stat().st_size), "no line ends"),
        (lambda path: (path.unlink(), path.mkdir()), "no regular file"),
        (lambda path: path.write_bytes(path.read_bytes() + b'{"id":"stranger","lane":"batch"}\n'), "does not belong"),
    ],
)
def test_a_result_file_that_is_not_ours_stops_the_run(
    make_desk: MakeDesk, spoil: Callable[[Path], object], said: str
) -> None:
    """Nothing is sent on a ground that does not hold; the hint names doctor or the way out."""
    desk = make_desk(faults={"items": [{"custom_id": "i1", "first_n_attempts": 1, "kind": "api_error"}]})
    desk.start("submit", desk.items(3))
    desk.simulator.advance(LATER)
    desk("poll")
    spoil(desk.folder / "out" / "results.jsonl")
    ran = desk("poll", "--resubmit", "r", code=1)
    assert said in ran.err
    assert "hint:" in ran.err
    assert desk.creates() == 1


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_text('{"id":"other"}\n')])
def test_a_resubmission_needs_no_input_file(make_desk: MakeDesk, spoil: Callable[[Path], object]) -> None:
    """Requests were written down when the run was planned; a changed or deleted input changes nothing in it."""
    desk = make_desk(faults={"items": [{"custom_id": "i2", "first_n_attempts": 1, "kind": "api_error"}]})
    items = desk.items(3)
    desk.start("submit", items)
    desk.simulator.advance(LATER)
    desk("poll")
    spoil(Path(items))
    desk("resubmit", "r")
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"] == {"planned": 3, "succeeded": 3, "failed": 0, "open": 0}
    ran = desk.start("submit", items, code=2)
    assert items in ran.err


def test_a_missing_spool_stops_before_anything_is_sent(make_desk: MakeDesk) -> None:
    """Requests that are gone cannot be sent, and half of them are never sent."""
    desk = make_desk(faults={"items": [{"custom_id": "i2", "first_n_attempts": 1, "kind": "api_error"}]})
    desk.start("submit", desk.items(3))
    desk.simulator.advance(LATER)
    desk("poll")
    (desk.folder / "state" / "r" / "spool.jsonl").write_bytes(b"")
    ran = desk("resubmit", "r", code=1)
    assert "spool.jsonl" in ran.err
    assert desk.creates() == 1


@pytest.mark.slow
@PROVIDERS
@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("point", ["commit", "http", "fsync", "replace", "write"])
def test_killed_at_every_step_of_a_submit_and_a_poll(make_desk: MakeDesk, provider: str, point: str, how: str) -> None:
    """The n-th step of each kind, one after the other, until none is left to be killed at."""
    desk = make_desk(provider, {"items": [{"custom_id": "i1", "first_n_attempts": 1, "kind": "api_error"}]})
    arguments = start_arguments(desk, desk.items(3), "submit")
    kills = 0
    for nth in (1, 2, 3, 5, 8):
        for verb in (arguments, ["poll", "--resubmit"]):
            code, said = struck(desk, *verb, blow=Blow(point, nth, how))
            kills += code == KILLED
            assert "Traceback" not in said
            desk.simulator.advance(LATER)
    assert kills
    desk(*arguments)
    for _ in range(5):  # waits, because settling a create in doubt takes its time
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit", "--wait-limit", "2s", code=None)
    assert desk.balanced()["counts"] == {"planned": 3, "succeeded": 3, "failed": 0, "open": 0}


def test_a_thread_of_the_same_process_is_refused_too(tmp_path: Path) -> None:
    """The lock is of the file, not of the process."""
    refused: list[HeldError] = []

    def enter() -> None:
        try:
            with RunLock(tmp_path / "lock"):
                pass
        except HeldError as error:
            refused.append(error)

    with RunLock(tmp_path / "lock"):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(refused) == 1
