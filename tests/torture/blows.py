"""Blows that strike a `batchctl` process from inside: killed at its n-th commit, call or write, or out of disk there.

Nothing of this is in the product: the functions it calls are replaced in the process that is to be struck.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

POINTS = ("commit", "http", "write", "fsync", "replace", "truncate", "sqlite")
"""What a process does that others, or its next life, can see; `sqlite` is a write of the database's own."""

HOWS = ("before", "after", "torn", "full")


@dataclass(frozen=True)
class Blow:
    """Where and how one process is struck.

    Args:
        point: one of POINTS, `any` of them, `time`, or `room`.
        nth: at its n-th such step; with `room`: no file can grow beyond so many bytes.
        how: killed `before` or `after` it, in the middle of a write (`torn`), or told that the disk is `full`.
        seconds: with `time`: killed so long after its start.
    """

    point: str
    nth: int = 1
    how: str = "before"
    seconds: float = 0.0

    def __str__(self) -> str:
        if self.point == "time":
            return f"killed after {self.seconds:.3f} s"
        if self.point == "room":
            return f"room for {self.nth} bytes a file"
        what = {"torn": "killed in the middle of", "full": "disk full at"}.get(self.how, f"killed {self.how}")
        return f"{what} its {self.nth}. {'step' if self.point == 'any' else self.point}"


class Striker:
    """Counts the steps of this process and strikes at the one that was chosen."""

    def __init__(self, blow: Blow) -> None:
        self._blow = blow
        self._seen: Counter[str] = Counter()

    def hit(self, point: str) -> bool:
        """Count a step; true when it is the one that was chosen."""
        self._seen[point] += 1
        self._seen["any"] += 1
        wanted = self._blow.point
        return wanted in (point, "any") and self._seen[wanted] == self._blow.nth

    def wrap(self, point: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """The function, struck when its turn comes."""

        def struck(*args: Any, **kwargs: Any) -> Any:
            if not self.hit(point):
                return real(*args, **kwargs)
            if self._blow.how == "full" and point in ("write", "fsync"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._blow.how == "torn" and point == "write":
                real(args[0], bytes(args[1])[: len(args[1]) // 2])
            elif self._blow.how == "after":
                real(*args, **kwargs)
            die()
            raise AssertionError("unreachable")

        return struck

    def wrap_async(self, point: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """The coroutine function, struck when its turn comes."""

        async def struck(*args: Any, **kwargs: Any) -> Any:
            hit = self.hit(point)
            if hit and self._blow.how != "after":
                die()
            answer = await real(*args, **kwargs)
            if hit:
                die()
            return answer

        return struck


def die() -> None:
    """End this process as a power cut would, as far as a process can."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(blow: Blow) -> None:
    """Prepare this process to be struck; it never goes back."""
    from batchctl.providers.sdk import Sdk
    from batchctl.state.connection import Database
    from tests.torture.sqlite_calls import strike_sqlite

    if blow.point == "room":
        resource.setrlimit(resource.RLIMIT_FSIZE, (blow.nth, blow.nth))
        return
    striker = Striker(blow)
    run = Database._run
    commit = striker.wrap("commit", run)
    Database._run = lambda self, sql: (commit if sql == "COMMIT" else run)(self, sql)  # type: ignore[method-assign]
    Sdk.call = striker.wrap_async("http", Sdk.call)  # type: ignore[method-assign]
    for name, point in (
        ("write", "write"),
        ("fsync", "fsync"),
        ("fdatasync", "fsync"),
        ("replace", "replace"),
        ("rename", "replace"),
        ("ftruncate", "truncate"),
    ):
        setattr(os, name, striker.wrap(point, getattr(os, name)))
    if blow.point == "sqlite":
        strike_sqlite(lambda: striker.hit("sqlite"), blow.how, die)
