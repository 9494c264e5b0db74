"""Readers of events: plain lines, a log file, the live display. A verb never knows which of them listen."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from batchctl.cli.text import commands_for, safe
from batchctl.core.errors import InputError
from batchctl.core.events import Emit, Event, Level


def fan_out(sinks: Sequence[Emit]) -> Emit:
    """One sink that hands each event to all; one that cannot write (a full disk, a closed terminal) stops no work."""

    def emit(event: Event) -> None:
        for sink in sinks:
            with suppress(OSError):
                sink(event)

    return emit


@contextmanager
def sinks_for(options: dict[str, Any], *, several: bool = False) -> Iterator[list[Emit]]:
    """The sinks these options ask for: people on stderr, and the log file.

    Args:
        several: the command works on several runs, so that each line says which.
    """
    with ExitStack() as stack:
        sinks: list[Emit] = [_for_people(options, stack, several=several)]
        if options["log_file"] is not None:
            file = stack.enter_context(_open_log(options["log_file"]))
            sinks.append(log_lines(file, json=options["log_format"] == "json"))
        yield sinks


def _for_people(options: dict[str, Any], stack: ExitStack, *, several: bool) -> Emit:
    """The live display on a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty() or options["no_progress"] or options["quiet"] or os.environ.get("TERM") == "dumb":
        return plain_lines(sys.stderr, quiet=options["quiet"], several=several, state=options["state_given"])
    from batchctl.cli.display import live_display

    return stack.enter_context(live_display(options, several=several))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def told(event: Event, *, several: bool, state: Path | None) -> str:
    """An event's text for people: with its run where several are at work, and commands as they must be given."""
    named = not several or event.run is None or re.search(rf"run {re.escape(event.run)}(?![\w.-])", event.text)
    return safe(commands_for(event.text if named else f"{event.run}: {event.text}", state))


def plain_lines(stream: IO[str], *, quiet: bool, several: bool, state: Path | None) -> Emit:
    """Timestamped lines without escape codes."""
    least = Level.WARNING if quiet else Level.INFO

    def emit(event: Event) -> None:
        if event.level < least:
            return
        mark = {Level.WARNING: "warning: ", Level.ERROR: "error: "}.get(event.level, "")
        stream.write(f"{_now()} {mark}{told(event, several=several, state=state)}\n")
        stream.flush()

    return emit


@contextmanager
def _open_log(path: Path) -> Iterator[IO[bytes]]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    except OSError as error:
        raise InputError(f"log file {path} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "ab", buffering=0) as file:
        yield file


def log_lines(file: IO[bytes], *, json: bool) -> Emit:
    """One line an event, each in one write: JSON for programs, key=value text for people."""

    def emit(event: Event) -> None:
        if event.level < Level.INFO:
            return  # a pulse for the live display
        if json:
            entry = {
                "at": _now(),
                "level": event.level.name.lower(),
                "kind": event.kind,
                "run": event.run,
                "batch": event.batch,
                "text": event.text,
                **event.data,
            }
            line = msgspec.json.encode(entry)
        else:
            text = told(event, several=True, state=None)
            details = safe(" ".join(f"{key}={_plain(value)}" for key, value in event.data.items()))
            line = f"{_now()} {event.level.name.lower()} {event.kind} {text} {details}".rstrip().encode()
        file.write(line + b"\n")

    return emit


def _plain(value: Any) -> str:
    """A value of an event: as it is, or as JSON where it has parts."""
    return msgspec.json.encode(value).decode() if isinstance(value, (dict, list)) else str(value)
