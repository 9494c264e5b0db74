"""Readers of events: plain lines, a log file, the live display. A verb never knows which of them listen."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import msgspec

from batchctl.cli.text import safe
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
def sinks_for(options: dict[str, Any]) -> Iterator[list[Emit]]:
    """The sinks these options ask for: people on stderr, and the log file."""
    with ExitStack() as stack:
        sinks: list[Emit] = [_for_people(options, stack)]
        if options["log_file"] is not None:
            file = stack.enter_context(_open_log(options["log_file"]))
            sinks.append(log_lines(file, json=options["log_format"] == "json"))
        yield sinks


def _for_people(options: dict[str, Any], stack: ExitStack) -> Emit:
    """The live display on a terminal, plain lines elsewhere."""
    if not sys.stderr.isatty() or options["no_progress"] or options["quiet"] or os.environ.get("TERM") == "dumb":
        return plain_lines(sys.stderr, quiet=options["quiet"])
    from batchctl.cli.display import live_display

    return stack.enter_context(live_display(options["state"]))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def plain_lines(stream: IO[str], *, quiet: bool) -> Emit:
    """Timestamped lines without escape codes."""
    least = Level.WARNING if quiet else Level.INFO

    def emit(event: Event) -> None:
        if event.level < least:
            return
        mark = {Level.WARNING: "warning: ", Level.ERROR: "error: "}.get(event.level, "")
        stream.write(f"{_now()} {mark}{safe(event.text)}\n")
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
            details = " ".join(f"{key}={value}" for key, value in event.data.items())
            line = safe(f"{_now()} {event.level.name.lower()} {event.kind} {event.text} {details}".rstrip()).encode()
        file.write(line + b"\n")

    return emit
