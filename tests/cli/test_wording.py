"""What the commands say: counts that add up, reasons by kind, places by file and line, the next step to take."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from tests.conftest import Desk

MakeDesk = Callable[..., Desk]


def write(desk: Desk, name: str, *records: object) -> str:
    """A JSONL file of records; a text stands in it as it is."""
    path = desk.folder / name
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records), "utf-8")
    return str(path)


def test_refused_records_keep_their_reason_and_id(make_desk: MakeDesk) -> None:
    """Summary, file and outcomes tell of records that were never sent what is true of them."""
    desk = make_desk(speed=36_000)
    bad = [{"id": "b", "txet": "x"}, {"id": "c", "txet": "x"}, '{"id":', {"id": "d", "text": " "}, {"id": "a"}]
    ran = desk.start("run", write(desk, "items.jsonl", {"id": "a", "text": "x"}, *bad), "--skip-bad", code=3)
    assert [line["id"] for line in desk.lines("errors.jsonl")] == ["b", "c", None, "d", None]
    status = desk.balanced()
    assert status["outcomes"] == {"succeeded": 1, "errored": 5}
    groups = {row["error_message"]: row["count"] for row in desk("errors", "r", "--summary", "--json").rows}
    assert sum(groups.values()) == 5
    assert max(groups.values()) == 2
    assert any("'text'" in message for message in groups)
    assert "not JSON" in desk("show", "r").out
    assert "not JSON" in ran.err
    kinds = [row["kind"] for row in desk("events", "r", "--json").rows]
    assert kinds[0] == "run.planned"
    assert "item.refused" in kinds
    assert desk("doctor").out == ""


def test_records_alike_are_one_line(make_desk: MakeDesk) -> None:
    """A mistyped placeholder over many records is said once, with how many and what fields there are."""
    desk = make_desk()
    items = write(desk, "items.jsonl", *({"id": f"i{number}", "body": "x"} for number in range(50)))
    ran = desk.start("submit", items, code=2)
    [line] = [line for line in ran.err.splitlines() if "--prompt uses" in line]
    assert "50 records" in line
    assert "id, body" in line
    assert "50 records" in desk.start("submit", items, "--id-field", "nope", code=2).err


def test_a_double_id_is_named_by_file_and_line(make_desk: MakeDesk) -> None:
    """Over several files both places are named, near and far apart."""
    desk = make_desk()
    one = write(desk, "one.jsonl", {"id": "x", "text": "t"})
    two = write(desk, "two.jsonl", {"id": "y", "text": "t"}, {"id": "x", "text": "t"})
    said = run_over(desk, one, two)
    assert "two.jsonl line 2" in said
    assert "one.jsonl line 1" in said
    many = write(desk, "many.jsonl", *({"id": number, "text": "t"} for number in range(20_000)))
    said = run_over(desk, many, one, two)
    assert "two.jsonl line 2" in said
    assert "one.jsonl line 1" in said


def run_over(desk: Desk, *files: str) -> str:
    """What is said to a submit of several files, which is refused."""
    *more, last = files
    return desk.start("submit", last, *more, code=2).err


def test_a_poll_says_what_it_saw(make_desk: MakeDesk) -> None:
    """Open, stopped and finished runs each get a line, named where there are several."""
    desk = make_desk()
    desk.start("submit", desk.items(3))
    assert "run r: 1 batch in progress, next look" in desk("poll").err
    desk.start("submit", desk.items(1, "b.jsonl"), "--out", str(desk.folder / "b"), name="b")
    desk.simulator.advance(3600)
    said = desk("poll").err
    assert "r: batch 1" in said
    assert "b: batch 1" in said
    assert "no open runs" in desk("poll").err
    assert "run r is done: 3 succeeded" in desk("poll", "r").err
    again = desk.start("submit", str(desk.folder / "items.jsonl"))
    assert "run r is done: 3 succeeded" in again.err
    assert again.out.startswith("r\n")
    assert "already" in desk.start("run", str(desk.folder / "items.jsonl")).err


def test_a_stopped_run_is_never_passed_over_in_silence(make_desk: MakeDesk) -> None:
    """Even a quiet poll says that it is stopped, why, and how it goes on."""
    desk = make_desk(faults={"calls": [{"endpoint": "*.batches.create", "action": "status", "status": 401}]})
    desk.start("submit", desk.items(3), code=6)
    said = desk("--quiet", "poll").err
    assert "run r is stopped: " in said
    assert "resubmit r` goes on" in said


def test_commands_in_messages_can_be_given_as_they_stand(make_desk: MakeDesk) -> None:
    """Where the state file is not the default one, the commands name it."""
    desk = make_desk()
    assert f"`batchctl --state {desk.folder / 'state.db'} status`" in desk_with_run(desk)("show", "nope", code=2).err


def desk_with_run(desk: Desk) -> Desk:
    """The desk, with a run submitted."""
    desk.start("submit", desk.items(3))
    return desk


def test_items_are_a_table(make_desk: MakeDesk) -> None:
    """A header, one line an item, columns below each other."""
    desk = desk_with_run(make_desk())
    header, *lines = desk("items", "r").out.splitlines()
    assert header.split() == ["id", "state", "outcome", "round", "attempts", "batch", "batch_id", "line"]
    assert len(lines) == 3
    assert {line.index("submitted") for line in lines} == {header.index("state")}


def test_mistyped_commands_and_places(make_desk: MakeDesk) -> None:
    """A name that is nearly one, an option at the wrong place, an empty file name."""
    desk = make_desk()
    assert "Did you mean 'status'" in desk("statsu", code=2).err
    assert "before the command" in desk("status", "--quiet", code=2).err
    assert "--state" in desk("--state", "", "status", code=2).err
    items = desk.items(2)
    assert "given twice" in desk.start("submit", items, items, code=2).err
    desk.start("submit", items, name="tickets")
    assert "did you mean 'tickets'" in desk("show", "ticket", code=2).err


def test_adopting_what_the_provider_does_not_know(make_desk: MakeDesk) -> None:
    """A mistyped batch id is a usage error with a way out."""
    desk = make_desk(faults={"calls": [{"endpoint": "*.batches.create", "action": "drop", "when": "before"}]})
    desk.start("submit", desk.items(2), code=None)
    assert "hint:" in desk("adopt", "r", "msgbatch_nope", code=2).err


def test_a_missing_input_is_no_end(make_desk: MakeDesk) -> None:
    """The run goes on without the file it was made from, and the refusal says how."""
    desk = desk_with_run(make_desk())
    items = desk.folder / "items.jsonl"
    items.unlink()
    assert "poll --wait --resubmit r`" in desk.start("run", str(Path(items)), code=2).err


def test_a_simulated_run_keeps_its_faults_and_a_refused_one_leaves_nothing(make_desk: MakeDesk) -> None:
    """The simulator starts when it is needed; what a run was started with holds for the commands that go on with it."""
    desk = make_desk()
    desk.start("submit", write(desk, "items.jsonl", "{"), "--simulate", code=2)
    assert {path.name for path in desk.folder.iterdir()} == {"items.jsonl", "prompt.txt"}
    faults = write(
        desk, "faults.json", {"calls": [{"endpoint": "*.batches.retrieve", "action": "html", "status": 502}]}
    )
    desk.start("submit", desk.items(3), "--simulate", "--faults", faults)
    Path(faults).unlink()
    assert "a look failed" in desk("poll").err
    desk.start("submit", desk.items(3), "--simulate")
    assert "failed" not in desk("poll", "--wait").err.replace("0 failed", "")
    assert desk("doctor").out == ""
    assert desk.creates() == 0


def test_the_log_file_tells_how_a_command_ended(make_desk: MakeDesk) -> None:
    """From cron the log file is all there is: the error and its exit code are in it."""
    desk = make_desk(faults={"calls": [{"endpoint": "*.batches.create", "action": "status", "status": 401}]})
    log = desk.folder / "log.jsonl"
    ran = desk.start("submit", desk.items(3), code=6)
    desk("--log-file", str(log), "--log-format", "json", "resubmit", "r", code=6)
    [ended] = [
        entry for entry in map(json.loads, log.read_text("utf-8").splitlines()) if entry["kind"] == "command.failed"
    ]
    assert ended["exit_code"] == 6
    assert ended["text"] in ran.err


def test_a_taken_port_is_a_usage_error(make_desk: MakeDesk) -> None:
    """`simulate` on a port that is in use says so in one line."""
    desk = make_desk()
    port = desk.simulator.url.rpartition(":")[2]
    said = desk("simulate", "--port", port, code=2).err
    assert f"port {port}" in said
    assert "--port 0" in said
