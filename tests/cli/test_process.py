"""The command as a process: locks between processes, signals, terminals, logs, locales."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FAST, MODELS, Desk

MakeDesk = Callable[..., Desk]
pytestmark = pytest.mark.slow


def command(desk: Desk, *arguments: str) -> list[str]:
    """A command line for a process of its own."""
    return [sys.executable, "-m", "batchctl", "--state", str(desk.folder / "state.db"), *arguments]


def start_arguments(desk: Desk, items: str, verb: str = "run") -> list[str]:
    """The usual start of a run."""
    usual = ["--provider", desk.provider, "--model", MODELS[desk.provider], "--prompt", desk.prompt, "--name", "r"]
    return [verb, items, *usual, "--out", str(desk.folder / "out"), *FAST]


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something another process does, a bounded time."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


def in_progress(desk: Desk) -> bool:
    """Whether the run's batch is at the provider."""
    if not (desk.folder / "state.db").exists():
        return False
    ran = desk("status", "--json", code=None)
    return ran.code == 0 and any(row["batches"]["in_progress"] for row in ran.rows)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_signal_saves_and_says_how_to_go_on(make_desk: MakeDesk, number: int, code: int) -> None:
    """The wait ends cleanly, batches stay recorded, and the same command finishes them (field report 87)."""
    desk = make_desk()
    process = subprocess.Popen(command(desk, *start_arguments(desk, desk.items(5))), stderr=subprocess.PIPE, text=True)
    until(lambda: in_progress(desk), "a batch in progress")
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert "msgbatch_" in err
    assert " poll --wait --resubmit r`" in err
    desk.simulator.advance(3600)
    desk("poll", "--wait")
    assert desk.creates() == 1
    assert desk.balanced()["counts"]["succeeded"] == 5


def holds(process: subprocess.Popen[Any], lock: Path) -> bool:
    """Whether a process has a lock, by what it wrote there: taking the lock to see would now and then refuse it."""
    return f'"pid":{process.pid},' in lock.read_text()


def test_a_second_poll_exits_5_at_once(make_desk: MakeDesk) -> None:
    """Two polls at once: the second leaves the run alone (field reports 176, 177)."""
    desk = make_desk()
    desk.start("submit", desk.items(3))
    process = subprocess.Popen(command(desk, "poll", "--wait"), stderr=subprocess.DEVNULL)
    lock = desk.folder / "state" / "r" / "lock"
    until(lambda: holds(process, lock), "the first poll holds the run")
    assert "held" in desk("poll", code=5).err
    assert "held" in desk("poll", "r", code=5).err
    desk.simulator.advance(3600)
    assert process.wait(timeout=30) == 0


def test_a_terminal_gets_a_live_display(make_desk: MakeDesk) -> None:
    """On a terminal there is a row per batch; with --no-progress there are plain lines without escapes."""
    desk = make_desk(speed=36_000)
    items = desk.items(4)
    live = on_terminal([*command(desk, *start_arguments(desk, items)), "--max-requests", "2"])
    assert b"\x1b[" in live
    assert b"requests" in live
    assert b"done" in live
    plain = on_terminal(command(desk, "--no-progress", "poll"))
    assert b"\x1b" not in plain


def on_terminal(arguments: list[str]) -> bytes:
    """What a process writes when its standard error is a terminal."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        arguments, stdout=subprocess.DEVNULL, stderr=follower, env={**os.environ, "TERM": "xterm"}
    )
    os.close(follower)
    seen = b""
    try:
        while chunk := os.read(leader, 65536):
            seen += chunk
    except OSError:  # the other end is closed
        pass
    os.close(leader)
    process.wait(timeout=30)
    return seen


def test_files_are_private_and_keys_are_nowhere(make_desk: MakeDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything written is for its owner only and holds no key."""
    desk = make_desk(speed=36_000)
    secret = "sk-very-secret-0123456789"
    monkeypatch.setenv("ANTHROPIC_API_KEY", secret)
    log = desk.folder / "log.jsonl"
    arguments = start_arguments(desk, desk.items(3))
    ran = desk("--log-file", str(log), "--log-format", "json", *arguments)
    assert secret not in ran.out + ran.err
    made = [path for path in desk.folder.rglob("*") if path.name not in ("items.jsonl", "prompt.txt")]
    for path in made:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode & 0o077 == 0, (path, oct(mode))
        if path.is_file():
            assert secret.encode() not in path.read_bytes()
    entries = [json.loads(line) for line in log.read_text("utf-8").split("\n") if line]
    kinds = {entry["kind"] for entry in entries}
    assert {"batch.submitted", "batch.status", "batch.collected", "run.done"} <= kinds
    submitted = next(entry for entry in entries if entry["kind"] == "batch.submitted")
    assert submitted["requests"] == 3
    assert submitted["batch_id"].startswith("msgbatch_")


def test_any_locale_gives_the_same_files(make_desk: MakeDesk) -> None:
    """Under a C locale without UTF-8 mode, unusual text survives (field reports 17, 18)."""
    desk = make_desk(speed=36_000)
    items = desk.items([{"id": "é🙂", "text": "李雷 “quoted” 🙂"}])
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}
    subprocess.run(command(desk, *start_arguments(desk, items)), env=env, check=True, capture_output=True)
    shown = subprocess.run(command(desk, "items", "r"), env=env, check=True, capture_output=True)
    assert shown.stdout
    assert desk.lines("results.jsonl")[0]["id"] == "é🙂"


def test_reading_can_be_interrupted(make_desk: MakeDesk) -> None:
    """A signal while standard input is awaited ends at once; nothing was sent and nothing is left."""
    desk = make_desk()
    process = subprocess.Popen(
        command(desk, *start_arguments(desk, "-", "submit")), stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(b'{"id": "a", "text": "x"}\n')
    process.stdin.flush()
    until((desk.folder / "state" / "r" / "spool.jsonl").exists, "the input is being read")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"nothing was sent" in err
    assert not (desk.folder / "state").exists()
    assert desk.creates() == 0


def test_an_interrupted_wait_names_every_run(make_desk: MakeDesk) -> None:
    """Ctrl-C over several runs: all of them are named, and so is the command that goes on with them."""
    desk = make_desk()
    desk.start("submit", desk.items(2))
    desk.start("submit", desk.items(2, "b.jsonl"), "--out", str(desk.folder / "b"), name="b")
    process = subprocess.Popen(command(desk, "poll", "--wait"), stderr=subprocess.PIPE, text=True)
    until(lambda: holds(process, desk.folder / "state" / "b" / "lock"), "the wait holds both runs")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "state of runs r, b is saved" in err
    assert "poll --wait --resubmit r b`" in err


def test_a_closed_pipe_ends_quietly(make_desk: MakeDesk) -> None:
    """`items RUN | head` is no error: exit 0 and nothing on standard error."""
    desk = make_desk()
    desk.start("submit", desk.items(3))
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run(command(desk, "items", "r"), stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (0, b"")
