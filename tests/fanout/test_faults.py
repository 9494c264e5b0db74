"""Servers that hang, trickle and cut; machines without descriptors; odd texts."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import sys

import pytest

from tests.cli.test_process import on_terminal
from tests.fanout.desks import MakeDesk, arguments, calls, fanout, fault


@pytest.mark.parametrize(
    "action",
    [
        pytest.param({"action": "hang", "seconds": 5}, id="hang", marks=pytest.mark.slow),
        pytest.param({"action": "slow", "bytes": 1, "delay": 0.5}, id="trickle", marks=pytest.mark.slow),
        pytest.param({"action": "drop"}, id="drop"),
    ],
)
def test_a_silent_server_holds_no_slot(make_desk: MakeDesk, action: dict[str, object]) -> None:
    """The deadline is for the whole call; two calls later the item has failed and the others are done (159)."""
    desk = make_desk()
    fault(desk, contains='text of item 2"', **action)
    fanout(desk, desk.items(6), "--timeout", "0.5s", "--max-attempts", "2", code=3)
    counts = desk.status()["counts"]
    assert counts == {"planned": 6, "succeeded": 5, "failed": 1, "open": 0}
    assert calls(desk) == 7
    (line,) = desk.lines("errors.jsonl")
    assert (line["id"], line["attempts"]) == ("i2", 2)


def test_special_words_are_plain_text(make_desk: MakeDesk) -> None:
    """A text that names a tokenizer's marks is counted like any other (field report 137)."""
    desk = make_desk()
    fanout(desk, desk.items([{"id": "a", "text": "<|endoftext|>"}]), "--tpm", "1000")
    assert desk.balanced()["counts"]["succeeded"] == 1


def test_an_inline_image_is_not_text(make_desk: MakeDesk) -> None:
    """A megabyte of base64 counts as one image, so a small budget lets it through (field report 134)."""
    desk = make_desk()
    source = {"type": "base64", "media_type": "image/png", "data": "A" * 1_000_000}
    content = [{"type": "image", "source": source}, {"type": "text", "text": "what is it?"}]
    params = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
    path = desk.folder / "requests.jsonl"
    path.write_text(json.dumps({"custom_id": "a", "params": params}) + "\n", "utf-8")
    out = str(desk.folder / "out")
    desk("fanout", str(path), "--provider", "anthropic", "--requests", "--name", "r", "--out", out, "--tpm", "50000")
    assert desk.balanced()["counts"]["succeeded"] == 1


def test_duplicate_texts_are_two_items(make_desk: MakeDesk) -> None:
    """Equal texts under two ids are two answers (field report 168)."""
    desk = make_desk()
    fanout(desk, desk.items([{"id": "a", "text": "same"}, {"id": "b", "text": "same"}]))
    assert calls(desk) == 2
    assert {line["id"] for line in desk.lines("results.jsonl")} == {"a", "b"}


@pytest.mark.slow
@pytest.mark.parametrize(("files", "window"), [(256, 192), (64, 32)])
def test_few_descriptors_are_enough(make_desk: MakeDesk, files: int, window: int) -> None:
    """A window of thousands with 256 descriptors, on one client, with no error (field reports 152, 154, 155, 156)."""
    desk = make_desk(latency_seconds=0.01, speed=1.0)
    line = [sys.executable, "-m", "batchctl", "--state", str(desk.folder / "state.db")]

    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    done = subprocess.run(
        [*line, *arguments(desk, desk.items(500), "--rpm", "1000000", "--tpm", "1000000000")],
        preexec_fn=few,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert calls(desk) == 500
    windows = [int(number) for number in re.findall(r"window (\d+)", done.stderr)]
    assert max(windows) == window
    assert ("ulimit -n" in done.stderr) == (window < 100)


@pytest.mark.slow
def test_a_terminal_shows_the_window(make_desk: MakeDesk) -> None:
    """On a terminal the line of the sync lane is drawn anew instead of scrolling."""
    desk = make_desk(latency_seconds=0.4, speed=1.0)
    line = [sys.executable, "-m", "batchctl", "--state", str(desk.folder / "state.db")]
    shown = on_terminal([*line, *arguments(desk, desk.items(24), "--concurrency", "8")])
    assert b"in flight" in shown
    assert b"window 8" in shown
    assert b"succeeded" in shown


@pytest.mark.parametrize(
    "action",
    [
        {"action": "html", "status": 403},
        {"action": "status", "status": 404, "message": "File file_123 not found"},
        {"action": "status", "status": 204, "body": ""},
    ],
    ids=lambda action: str(action["status"]),
)
def test_one_blocked_item_is_its_own_affair(make_desk: MakeDesk, action: dict[str, object]) -> None:
    """An edge that refuses one text, a file that one item names: the others are answered, it fails with what came."""
    desk = make_desk()
    fault(desk, contains='text of item 2"', **action)
    fanout(desk, desk.items(40), "--max-attempts", "2", "--concurrency", "4", code=3)
    assert desk.balanced()["counts"] == {"planned": 40, "succeeded": 39, "failed": 1, "open": 0}
    assert calls(desk) == 41
    (line,) = desk.lines("errors.jsonl")
    assert line["id"] == "i2"


@pytest.mark.parametrize("status", [403, 404])
def test_what_every_item_meets_stops_the_run(make_desk: MakeDesk, status: int) -> None:
    """Refused again and again with no answer between: nothing is spent, and the same command goes on."""
    desk = make_desk()
    fault(desk, action="status", status=status)
    fanout(desk, desk.items(40), code=6)
    assert calls(desk) <= 6
    assert desk.status()["counts"]["open"] == 40
    desk.simulator.set_faults({})
    fanout(desk, desk.items(40))
    assert {row["attempts"] for row in desk("items", "r", "--json").rows} == {1}


def test_a_refusal_that_all_meet_costs_no_item_its_attempts(make_desk: MakeDesk) -> None:
    """Three storms in a row with two attempts each: the limits are at fault, not the items (field reports 127, 132)."""
    desk = make_desk()
    fault(desk, action="status", status=429, times=12, headers={"retry-after": "0.01"})
    fanout(desk, desk.items(6), "--max-attempts", "4", "--concurrency", "3")
    assert desk.balanced()["counts"]["succeeded"] == 6


def test_scattered_errors_pause_nobody(make_desk: MakeDesk) -> None:
    """Where many go at once, some fail before the first can be answered; that is no outage."""
    desk = make_desk()
    fault(desk, action="status", status=500, rate=0.05)
    ran = fanout(desk, desk.items(400), "--concurrency", "40")
    assert desk.balanced()["counts"]["succeeded"] == 400
    assert "everything waits" not in ran.err


def test_a_run_with_lost_lines_is_not_done(make_desk: MakeDesk) -> None:
    """Answers that were counted and stand in no file any more: the rest is sent, and nobody calls it done."""
    desk = make_desk()
    fault(desk, contains='text of item 4"', action="status", status=401)
    fanout(desk, desk.items(4), "--concurrency", "1", code=6)
    results = desk.folder / "out" / "results.jsonl"
    results.write_bytes(results.read_bytes().replace(b'{"id":"i2"', b'{"id";"i2"', 1))
    desk.simulator.set_faults({})
    said = fanout(desk, desk.items(4), code=1).err
    assert "holds 3 whole lines, and 4 were written" in said
    assert desk.status()["state"] != "done"
