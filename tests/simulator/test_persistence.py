"""State that survives a restart, the control endpoints, and the process of its own."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from batchctl.simulator import SimulatorConfig, SimulatorThread
from tests.simulator.conftest import Bench, chat_line

Start = Callable[..., Bench]


def ask(url: str, body: Any = None) -> bytes:
    """Call a control endpoint."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=5) as answer:
        return bytes(answer.read())


async def test_a_later_process_serves_the_same_batches(bench_of: Start, tmp_path: Path) -> None:
    """Batches, files, cancels, time and the ledger are those of before; a torn tail is cut off."""
    faults = {"items": [{"custom_id": "i1", "kind": "overloaded"}]}
    before = bench_of(data=tmp_path, faults=faults)
    theirs = await before.create_anthropic(["a", "b", "c"])
    ours = await before.create_openai([chat_line(f"i{n}", f"x {n}") for n in range(4)])
    other = await before.create_openai([chat_line("z", "z")])
    before.sim.advance(10)
    await before.openai.batches.cancel(other.id)
    before.sim.advance(20)
    now, ledger = before.sim.now(), before.sim.ledger()
    before.sim.stop()
    with (tmp_path / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"event":"batch","id":"torn \xc3')
    after = bench_of(data=tmp_path)
    assert after.sim.now() >= now
    volatile = {"accepted_real", "closed_real"}
    assert [{k: v for k, v in entry.items() if k not in volatile} for entry in after.sim.ledger()] == [
        {k: v for k, v in entry.items() if k not in volatile} for entry in ledger
    ]
    assert (await after.openai.batches.retrieve(other.id)).status == "cancelled"
    after.sim.advance(100)
    results = await after.anthropic_results(theirs.id)
    assert [results[f"i{n}"].type for n in range(3)] == ["succeeded", "errored", "succeeded"]
    shown = await after.openai.batches.retrieve(ours.id)
    lines = await after.openai_lines(shown.output_file_id)
    assert {line["custom_id"] for line in lines} == {"i0", "i2", "i3"}
    await after.create_anthropic(["a"])
    assert len(after.sim.violations()) == 1


async def test_control_endpoints(bench: Bench) -> None:
    """Ledger, violations, stats, state, faults and clock answer over HTTP."""
    await bench.create_anthropic(["a"])
    root = f"{bench.sim.url}/simulator"
    (entry,) = ask(f"{root}/ledger").splitlines()
    assert json.loads(entry)["custom_id"] == "i0"
    before = json.loads(ask(f"{root}/state"))["now"]
    assert json.loads(ask(f"{root}/clock", {"advance": 100}))["now"] == pytest.approx(before + 100)
    assert json.loads(ask(f"{root}/state"))["batches"][0]["ending"] == "completed"
    await bench.create_anthropic(["a"])
    assert len(json.loads(ask(f"{root}/violations?custom_id=1"))) == 1
    assert json.loads(ask(f"{root}/stats"))["accepted"] == {"anthropic.batch": 2}
    assert json.loads(ask(f"{root}/faults", {"calls": []}))["faults"] == {"calls": []}
    for bad in ("faults", "clock"):
        with pytest.raises(urllib.error.HTTPError, match="400"):
            ask(f"{root}/{bad}", {"odd": 1})


async def test_dates_follow_the_virtual_clock(bench: Bench) -> None:
    """The Date header and created_at carry virtual time."""
    bench.sim.advance(10 * 86_400)
    response = await bench.openai.batches.with_raw_response.list()
    batch = await bench.create_openai([chat_line("a", "x")])
    assert abs(batch.created_at - bench.sim.now()) <= 1
    assert abs(parsedate_to_datetime(response.headers["date"]).timestamp() - bench.sim.now()) <= 1


def test_settings_from_a_file(tmp_path: Path) -> None:
    """Settings and faults come from JSON; an unknown one is refused by name."""
    (tmp_path / "faults.json").write_text('{"items": [{"kind": "missing"}]}')
    source = tmp_path / "simulator.json"
    source.write_text('{"speed": 50, "faults": "faults.json", "openai_limits": {"requests_per_minute": 5}}')
    config = SimulatorConfig.from_file(source)
    assert (config.speed, config.openai_limits.requests_per_minute) == (50, 5)
    assert config.faults["items"][0]["kind"] == "missing"
    source.write_text('{"sped": 50}')
    with pytest.raises(ValueError, match="sped"):
        SimulatorConfig.from_file(source)


def test_a_failing_start_is_raised() -> None:
    """A taken port or a bad rule is an error of `start`, not a hang."""
    with SimulatorThread(SimulatorConfig()) as first, pytest.raises(OSError, match="address"):
        SimulatorThread(SimulatorConfig(port=int(first.url.rsplit(":", 1)[1]))).start()


@pytest.mark.slow
def test_the_process_of_its_own() -> None:
    """It prints its address, answers, and stops on SIGTERM."""
    command = [sys.executable, "-m", "batchctl.simulator", "--port", "0", "--speed", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[3]
        assert json.loads(ask(f"{url}/simulator/state"))["speed"] == 60
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) == 0
