"""Ends calls that take too long, with one timer for all: one for each would be a tenth of a call's work."""

from __future__ import annotations

import asyncio
from typing import Any


class Deadline:
    """One call that is watched.

    Attributes:
        end: by the loop's clock.
        late: it was cancelled because its time was over.
    """

    __slots__ = ("end", "late", "task")

    def __init__(self, task: asyncio.Task[Any], end: float) -> None:
        self.task = task
        self.end = end
        self.late = False

    @property
    def passed(self) -> bool:
        """Whether a cancel its task meets came from here, and from nowhere else."""
        return self.late and self.task.cancelling() == 1


class Deadlines:
    """The calls in flight of one event loop; a task makes one at a time."""

    def __init__(self) -> None:
        self._open: set[Deadline] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._next = float("inf")  # when the timer looks

    def start(self, timeout: float) -> Deadline:
        """The current task begins a call that may take so many seconds, its connection and the last byte included."""
        task = asyncio.current_task()
        assert task is not None
        loop = task.get_loop()
        deadline = Deadline(task, loop.time() + timeout)
        self._open.add(deadline)
        if deadline.end < self._next:
            self._set(loop, deadline.end)
        return deadline

    def stop(self, deadline: Deadline) -> None:
        """A call is over."""
        self._open.discard(deadline)
        if deadline.late:
            deadline.task.uncancel()

    def close(self) -> None:
        """Watch nothing more."""
        if self._timer is not None:
            self._timer.cancel()
        self._next = float("inf")

    def _set(self, loop: asyncio.AbstractEventLoop, end: float) -> None:
        self.close()
        self._next = end
        self._timer = loop.call_at(end, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End what is late, and look again when the next may be."""
        self.close()
        now = loop.time()
        for deadline in self._open:
            if deadline.end <= now and not deadline.late:
                deadline.late = True
                deadline.task.cancel()
        if ends := [deadline.end for deadline in self._open if not deadline.late]:
            self._set(loop, min(ends))
