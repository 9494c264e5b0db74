"""Real processes, forked from one that has everything imported: commands that can be killed, and the simulator."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import http.client
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from batchctl.simulator import SimulatorConfig
from batchctl.simulator.server import Simulator
from tests.torture.blows import Blow, arm

LONGEST = 40.0  # seconds one command may take before it counts as hung
KILLED = -signal.SIGKILL
HUNG = -1
PR_SET_PDEATHSIG = 1
PIPE_BYTES = 1 << 20
STARTS = 20  # tries to get the simulator's old port back
KEY = "sk-torture-0123456789"
"""The credential of every command; it must be in no file that a run leaves."""


def preload() -> None:
    """Import what commands import, so that a fork starts where a cold process would be after two seconds."""
    import anthropic
    import jinja2
    import jsonschema
    import openai
    from anthropic import DefaultAioHttpClient as _  # noqa: F401  # its module is imported on first use
    from openai import DefaultAioHttpClient as __  # noqa: F401

    import batchctl.cli.doctor
    import batchctl.cli.fanout
    import batchctl.cli.main
    import batchctl.cli.reading
    import batchctl.cli.sending
    import batchctl.cli.session
    import batchctl.cli.steering
    import batchctl.providers.anthropic
    import batchctl.providers.openai
    import batchctl.runs.doctor
    import batchctl.runs.fanout
    import batchctl.runs.verbs
    import batchctl.state.migrations
    from batchctl.core.prices import Rates
    from batchctl.providers.sdk import trusted
    from batchctl.runs.context import utc_now

    trusted()
    Rates.load("anthropic", "claude-sonnet-4-5", batch=True, at=utc_now())
    assert anthropic, (jinja2, jsonschema, openai, batchctl)


def spawn(work: Callable[[], int], output: Path | int) -> int:
    """Fork a process that writes to a file (or descriptor) and ends with the code `work` returns; returns its id."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # it never outlives who forked it
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        handle = output if isinstance(output, int) else os.open(output, flags, 0o600)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)  # a test runner may have put others there
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
        code = work()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001  # a forked process must not return into its parent's code
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def reap(pid: int, seconds: float) -> int | None:
    """Wait for a process; its exit code (negative: its signal), or None when it is still running."""
    handle = os.pidfd_open(pid)
    try:
        ready, _, _ = select.select([handle], [], [], seconds)
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if ready else None


def command(
    arguments: list[str],
    env: Mapping[str, str],
    output: Path,
    *,
    blow: Blow | None = None,
    shift: float = 0.0,
    wal: bool = True,
    meanwhile: Callable[[], None] | None = None,
) -> int:
    """Run one command as a process of its own; its exit code, KILLED or HUNG.

    Args:
        wal: false: the file system knows no shared memory.
        meanwhile: done here while the process runs.
    """

    def work() -> int:
        os.environ.update(env)
        _quicken(shift)
        if not wal:
            _take_wal_away()
        if blow is not None and blow.point != "time":
            arm(blow)
        from batchctl.cli.main import main

        try:
            main(arguments)
        except SystemExit as stop:
            return int(stop.code or 0)

    with _said(output) as said:
        pid = spawn(work, said)
        if meanwhile is not None:
            meanwhile()
        if blow is not None and blow.point == "time":
            code = reap(pid, blow.seconds)
            if code is not None:
                return code
            os.kill(pid, signal.SIGKILL)
        code = reap(pid, LONGEST)
        if code is None:
            os.kill(pid, signal.SIGKILL)
            reap(pid, LONGEST)
            return HUNG
        return code


@contextlib.contextmanager
def _said(output: Path) -> Iterator[int]:
    """Where a command writes: a pipe, which no limit on the size of files reaches, appended to the output at last."""
    theirs, ours = os.pipe()
    try:
        fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        try:
            yield ours
        finally:
            os.close(ours)
            os.set_blocking(theirs, False)  # a simulator started meanwhile holds the other end
            with os.fdopen(theirs, "rb", 0, closefd=False) as pipe, output.open("ab") as file:
                file.write(pipe.read() or b"")
    finally:
        os.close(theirs)


def _quicken(shift: float) -> None:
    """Shorter timeouts, so that a hanging server costs no minutes, and a clock that is wrong."""
    from batchctl.cli import session, steering
    from batchctl.core import retry
    from batchctl.providers import anthropic, openai, sdk
    from batchctl.runs.context import Context, utc_now

    timeout = 0.7
    vars(sdk).update(READ_TIMEOUT=timeout, CONNECT_TIMEOUT=0.3)
    vars(retry).update(LONGEST_POLL=timeout, LONGEST_PAUSE=2.0)
    (sdk.Sdk.call.__kwdefaults__ or {})["timeout"] = timeout
    for module in (anthropic, openai):
        vars(module)["send_timeout"] = lambda _size: timeout
    if shift:
        wrong = partial(_wrong_clock, utc_now, shift)
        vars(session)["Context"] = partial(Context, now=wrong)
        vars(steering)["utc_now"] = wrong


def _take_wal_away() -> None:
    from batchctl.state import connection

    vars(connection)["_wal_works"] = lambda _connection: False


def _wrong_clock(right: Callable[[], datetime], shift: float) -> datetime:
    return right() + timedelta(seconds=shift)


class SimulatorProcess:
    """A simulator in a process of its own, asked over its control endpoints."""

    def __init__(self, config: SimulatorConfig, output: Path) -> None:
        self._config = config
        self._output = output
        self._start()

    def _start(self) -> None:
        for _ in range(STARTS):
            ours, theirs = os.pipe()
            self._pid = spawn(partial(_serve, self._config, theirs), self._output)
            os.close(theirs)
            with os.fdopen(ours) as pipe:
                port = pipe.readline()
            if port:
                self.port = int(port)
                self.url = f"http://127.0.0.1:{self.port}"
                return
            reap(self._pid, LONGEST)  # somebody may have taken its port for the moment
        raise RuntimeError("the simulator does not start")

    def restart(self, down: float) -> None:
        """Kill it; a new one at the same address knows what its data folder tells, but not the faults.

        Args:
            down: seconds in which nobody answers.
        """
        self.stop()
        time.sleep(down)
        self._config = replace(self._config, port=self.port)
        self._start()

    @property
    def env(self) -> dict[str, str]:
        """The variables by which the SDKs find it."""
        return {
            "ANTHROPIC_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.url,
            "OPENAI_API_KEY": KEY,
            "OPENAI_BASE_URL": f"{self.url}/v1",
        }

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> bytes:
        """One call; the body of its answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            raw = None if body is None else json.dumps(body).encode()
            connection.request(method, path, raw, {"content-type": "application/json", **(headers or {})})
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]!r}")
        return data

    def get(self, path: str) -> Any:
        """The JSON behind a control endpoint."""
        return json.loads(self.ask("GET", f"/simulator/{path}"))

    def ledger(self) -> list[dict[str, Any]]:
        """Every acceptance, in order."""
        return [json.loads(line) for line in self.ask("GET", "/simulator/ledger").split(b"\n") if line]

    def set_faults(self, faults: dict[str, Any]) -> None:
        """Replace the fault rules."""
        self.ask("POST", "/simulator/faults", faults)

    def advance(self, seconds: float) -> None:
        """Push the simulator's clock forward."""
        self.ask("POST", "/simulator/clock", {"advance": seconds})

    def stop(self) -> None:
        """End it."""
        os.kill(self._pid, signal.SIGKILL)
        reap(self._pid, LONGEST)


def _serve(config: SimulatorConfig, pipe: int) -> int:
    async def live() -> None:
        simulator = Simulator(config)
        await simulator.start()
        os.write(pipe, f"{simulator.port}\n".encode())
        os.close(pipe)
        await asyncio.Event().wait()

    asyncio.run(live())
    return 0
