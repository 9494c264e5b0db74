"""Items that stream in: planned as they come, nothing read far ahead, taken up again after an interruption."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from typing import IO

import pytest

from batchctl.runs.fanout_feed import AHEAD
from tests.conftest import Desk
from tests.fanout.desks import MakeDesk, arguments, calls, fanout, fault

Stdin = Callable[[Iterable[object]], None]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Stdin:
    """Sets what comes in by standard input."""

    def put(items: Iterable[object]) -> None:
        lines = "".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in items)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))

    return put


def items(count: int, start: int = 1) -> list[object]:
    """Plain items."""
    return [{"id": f"i{number}", "text": f"text {number}"} for number in range(start, start + count)]


@pytest.mark.slow
def test_a_stream_becomes_a_run(make_desk: MakeDesk, stdin: Stdin) -> None:
    """Standard input gives the same run as a file, and the same stream again changes nothing."""
    desk = make_desk()
    stdin(items(600))
    fanout(desk, "-")
    status = desk.balanced()
    assert (status["state"], status["counts"]["succeeded"]) == ("done", 600)
    stdin(items(600))
    fanout(desk, "-")
    assert calls(desk) == 600
    stdin(items(601))
    assert "different" in fanout(desk, "-", code=2).err


def test_bad_records_of_a_stream_fail_alone(make_desk: MakeDesk, stdin: Stdin) -> None:
    """What was sent cannot be taken back, so a bad record is named and becomes a failed item."""
    desk = make_desk()
    stdin([*items(2), "{broken", {"text": "no id"}, {"id": "i1", "text": "again"}, *items(2, 3)])
    ran = fanout(desk, "-", code=3)
    assert desk.balanced()["counts"] == {"planned": 7, "succeeded": 4, "failed": 3, "open": 0}
    messages = [line["error"]["message"] for line in desk.lines("errors.jsonl")]
    assert [message.split(":")[0] for message in messages] == ["- line 3", "- line 4", "- line 5"]
    assert "lines 1 and 5" in messages[2]
    assert ran.err.count("not sent") == 3


def interrupted(desk: Desk, stdin: Stdin) -> None:
    """A stream of six records, two of them bad, that stopped after three answers."""
    fault(desk, action="error", name="low_credit", from_nth=4)
    stdin([*items(4), "{broken", *items(1, 5)])
    fanout(desk, "-", "--concurrency", "1", code=6)
    assert calls(desk) == 4
    desk.simulator.set_faults({})


def test_an_interrupted_stream_comes_again_from_its_start(make_desk: MakeDesk, stdin: Stdin) -> None:
    """Records that were planned are skipped, good or bad; nothing is paid twice and nothing counted twice."""
    desk = make_desk()
    interrupted(desk, stdin)
    assert desk.status()["state"] == "stopped"
    stdin([*items(4), "{broken", *items(3, 5)])
    fanout(desk, "-", code=3)
    status = desk.balanced()
    assert status["counts"] == {"planned": 8, "succeeded": 7, "failed": 1, "open": 0}
    assert status["state"] == "done"


def test_an_interrupted_stream_goes_on_with_new_items(make_desk: MakeDesk, stdin: Stdin) -> None:
    """A queue does not repeat itself: what it brings now follows what was planned."""
    desk = make_desk()
    interrupted(desk, stdin)
    stdin([*items(3, 6), {"id": "i2", "text": "not what it was"}])
    fanout(desk, "-", code=3)
    assert desk.balanced()["counts"] == {"planned": 10, "succeeded": 8, "failed": 2, "open": 0}
    assert "planned before with another request" in desk.lines("errors.jsonl")[-1]["error"]["message"]


def test_an_unfinished_stream_is_never_called_done(make_desk: MakeDesk, stdin: Stdin) -> None:
    """The rest can be sent and everything have an outcome: the input has not ended, and a person may end it."""
    desk = make_desk()
    interrupted(desk, stdin)
    desk("fanout", "--run", "r", code=3)
    desk("poll")
    status = desk.balanced()
    assert (status["state"], status["counts"]["open"]) == ("open", 0)
    assert "not read to its end" in status["needs"]
    desk("accept", "r")
    assert desk.balanced()["state"] == "done"


def test_an_empty_stream_leaves_nothing(make_desk: MakeDesk, stdin: Stdin) -> None:
    """No item, no run."""
    desk = make_desk()
    stdin([])
    assert "empty" in fanout(desk, "-", code=2).err
    assert not (desk.folder / "state.db").exists()


def process(desk: Desk, source: str, *more: str) -> subprocess.Popen[bytes]:
    """The command as a process of its own, fed through a pipe."""
    line = [sys.executable, "-m", "batchctl", "--state", str(desk.folder / "state.db")]
    return subprocess.Popen([*line, *arguments(desk, source, *more)], stdin=subprocess.PIPE, stderr=subprocess.PIPE)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something another process does, a bounded time."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


def feed(pipe: IO[bytes], start: int, count: int) -> None:
    """Write some items."""
    pipe.write("".join(json.dumps(item) + "\n" for item in items(count, start)).encode())
    pipe.flush()


@pytest.mark.slow
def test_answers_come_while_the_stream_goes_on(make_desk: MakeDesk) -> None:
    """An item is sent when it comes, not when the input ends; a signal ends a wait for more at once."""
    desk = make_desk()
    worker = process(desk, "-")
    assert worker.stdin is not None
    for number in (1, 2, 3):
        feed(worker.stdin, number, 1)
        until(lambda number=number: calls(desk) == number, f"call {number}")  # type: ignore[misc]
    worker.send_signal(signal.SIGINT)
    assert worker.wait(timeout=20) == 130  # while its input is still open
    _, err = worker.communicate()
    assert b"--run" in err
    status = desk.balanced()
    assert (status["state"], status["counts"]["succeeded"]) == ("open", 3)


@pytest.mark.slow
def test_nothing_is_read_far_ahead(make_desk: MakeDesk) -> None:
    """While no answer comes, no more items are planned than the window and a chunk hold (charter: backpressure)."""
    desk = make_desk(latency_seconds=600.0, speed=1.0)
    worker = process(desk, "-", "--concurrency", "4")
    assert worker.stdin is not None
    os.set_blocking(worker.stdin.fileno(), False)
    written = 0
    block = "".join(json.dumps(item | {"more": "x" * 500}) + "\n" for item in items(200) if isinstance(item, dict))
    data = block.encode()
    idle = 0
    while idle < 40 or calls(desk) < 4:
        try:
            written += os.write(worker.stdin.fileno(), data)
            idle = 0
        except BlockingIOError:
            idle += 1
            time.sleep(0.02)
    worker.kill()
    worker.communicate()
    assert desk.status()["counts"]["planned"] <= 4 + AHEAD
    assert written < 4_000_000
    assert calls(desk) == 4


@pytest.mark.slow
@pytest.mark.parametrize("moment", [60, 180, 290])
def test_a_killed_process_repeats_only_what_was_in_flight(make_desk: MakeDesk, moment: int) -> None:
    """After kill -9 the same command goes on, no answer is lost, no item stands twice (field reports 163, 164)."""
    desk = make_desk(latency_seconds=0.02, latency_spread=0.5, speed=1.0)
    source = desk.items(300)
    worker = process(desk, source, "--concurrency", "8")
    until(lambda: calls(desk) >= moment, "some calls")
    worker.kill()
    worker.communicate()
    results = desk.folder / "out" / "results.jsonl"
    with results.open("ab") as file:
        file.write(b'{"id":"i299","text":"\xc3')
    fanout(desk, source, "--concurrency", "8")
    assert calls(desk) <= 300 + 8
    counts = desk.status()["counts"]
    assert (counts["succeeded"], counts["open"]) == (300, 0)
    ids = [line["id"] for line in desk.lines("results.jsonl")]
    assert len(ids) == len(set(ids)) == 300
