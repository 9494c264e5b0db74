"""Secrets stay secret, and hostile ids, answers, error texts and addresses do no harm."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from batchctl.core.reply import parse_output
from batchctl.simulator import SimulatorConfig, SimulatorThread
from tests.cli.passes import LATER
from tests.conftest import MODELS, Desk

MakeDesk = Callable[..., Desk]
PROVIDERS = pytest.mark.parametrize("provider", ["anthropic", "openai"])
SECRET = "sk-secret-0123456789abcdef"
EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil"


def everything(folder: Path) -> bytes:
    """All bytes of all files made below a folder."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@PROVIDERS
def test_a_key_the_provider_echoes_is_nowhere(
    make_desk: MakeDesk, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Error texts pass through terminal, log, state file and results without the key."""
    endpoint = "anthropic.batches.create" if provider == "anthropic" else "openai.files.upload"
    echo = {
        "endpoint": endpoint,
        "action": "status",
        "status": 401,
        "message": f"Incorrect API key {SECRET}",
        "times": 1,
    }
    desk = make_desk(provider, {"calls": [echo]})
    monkeypatch.setenv(f"{provider.upper()}_API_KEY", SECRET)
    log = desk.folder / "log.jsonl"
    items = desk.items(2)
    refused = desk(
        *("--log-file", str(log), "--log-format", "json", "submit", items, "--provider", provider),
        *("--model", MODELS[provider], "--prompt", desk.prompt, "--name", "r", "--out", str(desk.folder / "out")),
        code=6,
    )
    assert "Incorrect API key" in refused.err
    assert SECRET not in refused.out + refused.err
    desk("resubmit", "r")
    desk.simulator.advance(LATER)
    desk("poll")
    reading = (["show", "r"], ["events", "r", "--json"], ["status", "--json"], ["report", "r"], ["doctor"])
    assert SECRET not in "".join(desk(*verb).out for verb in reading)
    assert SECRET.encode() not in everything(desk.folder)


@PROVIDERS
def test_a_key_inside_an_output_uri_is_refused(make_desk: MakeDesk, provider: str) -> None:
    """Credentials in a URI would be stored and shown."""
    desk = make_desk(provider)
    ran = desk("submit", desk.items(1), "--provider", provider, "--model", MODELS[provider], "--prompt", desk.prompt,
               "--out", f"s3://key:{SECRET}@bucket/x", code=2)  # fmt: skip
    assert SECRET not in ran.out + ran.err
    assert SECRET.encode() not in everything(desk.folder)


def test_results_on_another_host_get_no_credential(make_desk: MakeDesk) -> None:
    """An address the provider names elsewhere is refused by name; that host hears nothing."""
    with SimulatorThread(SimulatorConfig(speed=0.0)) as elsewhere:
        desk = make_desk(faults={"batches": [{"results_host": elsewhere.url}]})
        desk.start("submit", desk.items(2))
        desk.simulator.advance(LATER)
        ran = desk("poll", code=6)
        assert "another host" in ran.err
        assert elsewhere.stats()["calls"] == {}
    assert desk.status()["counts"]["open"] == 2


@PROVIDERS
def test_nothing_hostile_steers_the_terminal(make_desk: MakeDesk, provider: str) -> None:
    """Escapes in ids, answers and provider messages are shown, not obeyed, in every command and in the log."""
    item = {"id": EVIL, "text": EVIL}
    fault = {"endpoint": f"{provider}.batches.retrieve", "action": "status", "status": 500, "message": EVIL, "times": 1}
    desk = make_desk(provider, {"calls": [fault]})
    log = desk.folder / "log.txt"
    desk.start("submit", desk.items([item, {"id": "b", "text": "x"}]))
    desk.simulator.advance(LATER)
    said = desk("--log-file", str(log), "poll").err
    desk("poll")
    for verb in ("show", "items", "batches", "events", "status"):
        ran = desk(verb, "r")
        said += ran.out + ran.err
    said += log.read_text("utf-8")
    for sign in ("\x1b", "\x07", "\x9b", "\u202e"):
        assert sign not in said
    assert {line["id"] for line in desk.lines("results.jsonl")} == {EVIL, "b"}


@pytest.mark.slow
def test_json_on_a_terminal_steers_nothing(make_desk: MakeDesk) -> None:
    """JSON escapes the first 32 characters by itself; on a terminal the others are escaped too, and say the same."""
    desk = make_desk()
    desk.start("submit", desk.items([{"id": EVIL, "text": EVIL}]))
    desk.simulator.advance(LATER)
    desk("poll")
    assert json.loads(desk("items", "r", "--json").out)["id"] == EVIL
    for verb in (["results", "r"], ["items", "r", "--json"]):
        leader, follower = pty.openpty()
        line = [sys.executable, "-m", "batchctl", "--state", str(desk.folder / "state.db"), *verb]
        subprocess.run(line, stdout=follower, check=True)
        os.close(follower)
        said = os.read(leader, 65_536).decode()
        os.close(leader)
        assert not any(sign in said for sign in ("\x1b", "\x07", "\x9b", "\u202e"))
        assert json.loads(said)["id"] == EVIL


@pytest.mark.parametrize("name", ["../up", "a/b", "..", ".hidden", "/abs", "x" * 101, "a\nb", "-x"])
def test_a_run_name_is_never_a_path(make_desk: MakeDesk, name: str) -> None:
    """Names that would be folders elsewhere are refused before anything is made."""
    desk = make_desk()
    items = desk.items(1)
    before = sorted(desk.folder.rglob("*"))
    desk(
        "submit",
        items,
        "--provider",
        "anthropic",
        "--model",
        "m",
        "--prompt",
        str(Path(items)),
        f"--name={name}",
        code=2,
    )
    assert sorted(desk.folder.rglob("*")) == before
    assert desk.creates() == 0


@pytest.mark.parametrize("id_", ["../../etc/passwd", "/abs", "..", "CON", "a\\b", "=cmd|' /C calc'!A0", "<script>"])
def test_an_id_is_never_a_path(make_desk: MakeDesk, id_: str) -> None:
    """Whatever an id looks like, files are made only where they always are."""
    desk = make_desk(speed=36_000)
    desk.start("run", desk.items([{"id": id_, "text": "x"}]))
    made = {path.relative_to(desk.folder).parts[0] for path in desk.folder.rglob("*")}
    assert made <= {"items.jsonl", "prompt.txt", "out", "state", "state.db", "state.db-wal", "state.db-shm"}
    assert [line["id"] for line in desk.lines("results.jsonl")] == [id_]


@pytest.mark.parametrize("target", ["results.jsonl", "errors.jsonl"])
def test_a_link_in_the_output_folder_is_not_followed(make_desk: MakeDesk, target: str) -> None:
    """Nobody can make a run write into another file by a link put there beforehand."""
    desk = make_desk()
    victim = desk.folder / "victim"
    victim.write_bytes(b"precious\n")
    (desk.folder / "out").mkdir()
    (desk.folder / "out" / target).symlink_to(victim)
    desk.start("submit", desk.items(1), code=2)
    assert victim.read_bytes() == b"precious\n"
    assert desk.creates() == 0


@pytest.mark.parametrize(
    "template", ["{{ ''.__class__.__mro__ }}", "{% include '/etc/passwd' %}", "{{ self.__init__ }}"]
)
def test_a_template_reaches_nothing_but_the_item(make_desk: MakeDesk, template: str) -> None:
    """Neither Python nor the file system is in reach (the core's tests hold the long list)."""
    desk = make_desk()
    prompt = desk.folder / "evil.txt"
    prompt.write_text(template, "utf-8")
    ran = desk("submit", desk.items(1), "--provider", "anthropic", "--model", "m", "--prompt", str(prompt),
               "--out", str(desk.folder / "out"), code=2)  # fmt: skip
    assert "root:" not in ran.err
    assert "Traceback" not in ran.err
    assert desk.creates() == 0


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000 + "1" + "}" * 50_000, "9" * 100_000, '"\\ud800"'])
def test_an_answer_is_parsed_in_bounds(text: str) -> None:
    """Deep or endless answers are no JSON reply, and no crash."""
    output = parse_output(text)
    assert output is None or json.dumps(output)


def test_a_template_of_an_item_is_not_a_template(make_desk: MakeDesk) -> None:
    """Fields are data: placeholders inside them are sent as they are."""
    from batchctl.simulator.answers import answer

    desk = make_desk(speed=36_000)
    desk.start("run", desk.items([{"id": "a", "text": "{{ id }}{% raw %}"}]))
    assert desk.lines("results.jsonl")[0]["text"] == answer("Answer this: {{ id }}{% raw %}")
