"""Disks that are full, file sizes that are limited, folders that cannot be written: named, and nothing lost or sent."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.passes import LATER, pass_until_quiet
from tests.cli.test_process import start_arguments
from tests.conftest import Desk
from tests.crash.test_machine import struck
from tests.torture.blows import Blow
from tests.torture.processes import KILLED, command, preload, reap, spawn

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
CODES = (0, 1, 7)  # done; storage; the state file itself


def named(code: int, said: str) -> None:
    """What was said is for people: no traceback, and a way out where it did not work."""
    assert code in CODES, said
    assert "Traceback" not in said
    assert code == 0 or "hint:" in said


@pytest.mark.slow
@PROVIDERS
@pytest.mark.parametrize("room", [0, 300, 4_096, 60_000, 90_000, 200_000])
def test_no_file_can_grow_beyond_a_limit(make_desk: MakeDesk, provider: str, room: int) -> None:
    """Spool, state file, journal, results or log meet their end: with room again the same commands go on."""
    desk = make_desk(provider)
    text = "x" * 600  # so that each file in turn is the first to meet its end
    items = desk.items([{"id": f"i{n}", "text": f"{n} {text}"} for n in range(150)])
    arguments = ["--log-file", str(desk.folder / "log.txt"), *start_arguments(desk, items, "submit")]
    named(*struck(desk, *arguments, blow=Blow("room", room, "full")))
    sent = desk.creates()
    desk(*arguments)
    assert desk.creates() == max(sent, 1)
    desk.simulator.advance(LATER)
    named(*struck(desk, "poll", blow=Blow("room", room, "full")))
    assert desk.creates() == max(sent, 1)
    pass_until_quiet(desk, passes=2)
    assert desk.balanced()["counts"]["succeeded"] == 150
    assert desk("doctor").out == ""


@pytest.mark.slow
@PROVIDERS
@pytest.mark.parametrize("how", ["full", "torn"])
def test_the_database_meets_a_full_disk_in_its_own_writes(make_desk: MakeDesk, provider: str, how: str) -> None:
    """At every write in turn, refused or cut by a kill: the state file stays sound and nothing is sent twice."""
    desk = make_desk(provider, {"items": [{"custom_id": "i1", "first_n_attempts": 1, "kind": "api_error"}]})
    arguments = start_arguments(desk, desk.items(3), "submit")
    hits = 0
    for nth in (1, 3, 6, 10, 15, 25, 45):
        for verb in (arguments, ["poll", "--resubmit"]):
            code, said = struck(desk, *verb, blow=Blow("sqlite", nth, how))
            hits += code in (1, 7, KILLED)
            assert code in (*CODES, 2, KILLED), said
            assert "Traceback" not in said
            desk.simulator.advance(LATER)
    if not hits:
        pytest.skip("this Python carries a SQLite of its own, which cannot be struck")
    desk(*arguments)
    for _ in range(5):
        desk.simulator.advance(LATER)
        desk("poll", "--resubmit", "--wait-limit", "2s", code=None)
    assert desk.balanced()["counts"] == {"planned": 3, "succeeded": 3, "failed": 0, "open": 0}
    assert desk("doctor").out == ""


@pytest.mark.slow
def test_a_killed_writer_without_wal_hides_nothing_from_readers(make_desk: MakeDesk) -> None:
    """A rollback journal left by a kill: commands that only read say where the runs stand all the same."""
    desk = make_desk()
    preload()
    arguments = ["--state", str(desk.folder / "state.db"), *start_arguments(desk, desk.items(3), "submit")]
    output = desk.folder / "said.txt"
    for nth in range(20, 90, 6):
        command(arguments, {}, output, blow=Blow("sqlite", nth, "after"), wal=False)
        ran = desk("status", code=None)
        assert ran.code in (0, 2), ran.err  # 2: it died before there was a state file
    command(arguments, {}, output, wal=False)
    desk.simulator.advance(LATER)
    desk("poll")
    assert desk.balanced()["counts"]["succeeded"] == 3


def test_a_log_at_its_limit_stops_nothing(make_desk: MakeDesk) -> None:
    """The log is the least of all files: without room for it the work goes on."""
    desk = make_desk()
    log = desk.folder / "log.txt"
    with log.open("wb") as file:
        file.truncate(10_000_000)
    desk.start("submit", desk.items(2))
    desk.simulator.advance(LATER)
    code, said = struck(desk, "--log-file", str(log), "poll", blow=Blow("room", 5_000_000, "full"))
    assert code == 0, said
    assert desk.balanced()["counts"]["succeeded"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", [["status"], ["results", "r"], ["items", "r", "--json"], ["report", "r", "--out", "-"]]
)
def test_output_on_a_full_disk_is_named(make_desk: MakeDesk, verb: list[str]) -> None:
    """A redirected list that did not arrive whole is an error, said in words."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    desk.simulator.advance(LATER)
    desk("poll")
    line = [sys.executable, "-m", "batchctl", "--state", str(desk.folder / "state.db"), *verb]
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, check=False)
    assert ran.returncode == 1
    assert b"No space left" in ran.stderr
    assert b"Traceback" not in ran.stderr
    assert b"Exception ignored" not in ran.stderr


def without_privileges(desk: Desk, *arguments: str) -> tuple[int, str]:
    """Run a command for which permissions count, also where tests run as root."""
    preload()
    output = desk.folder / "said.txt"
    output.unlink(missing_ok=True)

    def work() -> int:
        from batchctl.cli.main import main

        header = struct.pack("Ii", 0x20080522, 0)
        ctypes.CDLL(None).capset(header, bytes(24))  # gives up every capability
        try:
            main(["--state", str(desk.folder / "work" / "state.db"), *arguments])
        except SystemExit as stop:
            return int(stop.code or 0)

    code = reap(spawn(work, output), 40)
    assert code is not None
    return code, output.read_text("utf-8")


@pytest.mark.parametrize("place", ["work", "out"])
def test_a_folder_that_may_not_be_written_sends_nothing(make_desk: MakeDesk, place: str) -> None:
    """The state file's folder or the output folder is read-only: named before anything is sent."""
    desk = make_desk()
    folder = desk.folder / place
    arguments = start_arguments(desk, desk.items(2), "submit")
    folder.mkdir()
    folder.chmod(0o500)
    if os.access(folder, os.W_OK) and os.geteuid():
        pytest.skip("permissions do not count on this file system")
    code, said = without_privileges(desk, *arguments)
    named(code, said)
    assert code != 0
    assert str(folder) in said
    assert desk.creates() == 0
    folder.chmod(0o700)
    assert without_privileges(desk, *arguments)[0] == 0
    assert desk.creates() == 1


def test_a_folder_that_becomes_read_only_loses_nothing(make_desk: MakeDesk) -> None:
    """Between submit and poll the output folder is closed: the answers stay at the provider until it is open again."""
    desk = make_desk()
    desk.start("submit", desk.items(2), "--out", str(desk.folder / "out"))
    state = desk.folder / "work"
    state.mkdir()
    for path in [*desk.folder.glob("state.db*"), desk.folder / "state"]:
        path.rename(state / path.name)
    desk.simulator.advance(LATER)
    (desk.folder / "out").mkdir(exist_ok=True)
    (desk.folder / "out").chmod(0o500)
    code, said = without_privileges(desk, "poll")
    (desk.folder / "out").chmod(0o700)
    named(code, said)
    if os.geteuid() == 0:
        assert code == 1
    assert without_privileges(desk, "poll")[0] == 0
    assert len(desk.lines("results.jsonl")) == 2
