"""Plans items while they stream in: each chunk is spooled and in the store before any call for it is made."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from batchctl.core.events import Level
from batchctl.core.model import ItemState, Outcome
from batchctl.files.readers import BadRecord
from batchctl.files.spool import SpoolWriter, read_line
from batchctl.runs.building import Built, ItemProblemError, make_builder
from batchctl.runs.fanout_feed import Feed, Placed
from batchctl.runs.held import HeldRun
from batchctl.runs.planning import problem_line
from batchctl.runs.problems import SHOWN, Problem
from batchctl.state.rows import ItemRow, Member, NewItem

NO_BATCH = 0


class StreamedItems:
    """Items of a source that may never end, planned a chunk at a time.

    A stream that was interrupted may come again from its start, or go on with new items: a record that was planned
    before is skipped. Others were sent before a bad record is met, so it fails alone.

    Args:
        settle: counts every outcome written so far, so that lines of bad records can follow them.
    """

    def __init__(self, run: HeldRun, feed: Feed, settle: Callable[[], None]) -> None:
        self._run = run
        self._feed = feed
        self._settle = settle
        self._build = make_builder(run.settings, run.form)
        self._limit = run.limits.request_bytes
        self._spool = SpoolWriter(run.spool, append=True)
        self._read = run.spool.open("rb", buffering=0)
        self._before = self._seq = run.refresh().planned
        self._position = 0  # of a record in this reading
        self._chunk: deque[Member] = deque()
        self._bad = 0

    @property
    def ended(self) -> bool:
        """Whether the source has ended and everything of it was taken."""
        return not self._chunk and self._feed.ended

    def take(self) -> Member | None:
        """The next item, None where there is none now."""
        while not self._chunk and (records := self._feed.take()):
            self._plan(records)
        return self._chunk.popleft() if self._chunk else None

    def close(self) -> None:
        """Close the spool and read nothing more."""
        self._feed.stop()
        self._spool.close()
        self._read.close()

    def _plan(self, records: list[Placed]) -> None:
        built = [(placed, self._built(placed)) for placed in records]
        known = self._known([result.id for _, result in built if isinstance(result, Built)])
        lines: dict[str, int] = {}  # of this chunk, by id
        rows: list[NewItem] = []
        refused: list[Problem] = []
        start = self._position - len(records)
        for position, (placed, result) in enumerate(built, start=start + 1):
            reason = result if isinstance(result, str) else self._repeated(result, placed, known, lines)
            if reason == SEEN or (isinstance(result, str) and self._was_bad(position, placed)):
                continue
            self._seq += 1
            where = (self._seq, placed.source, placed.path, placed.record.line)
            if isinstance(result, str) or reason is not None:
                refused.append(Problem(*where, str(reason)))
                continue
            lines[result.id] = placed.record.line
            if (row := self._spooled(result, placed)) is not None:
                rows.append(row)
            else:
                reason = f"its request is over the limit of {self._limit:,} bytes"
                refused.append(Problem(*where, reason, result.id, "request_too_large"))
        if rows or refused:
            self._store(rows, refused)

    def _built(self, placed: Placed) -> Built | str:
        """A request, or what is wrong with the record."""
        self._position += 1
        if isinstance(placed.record, BadRecord):
            return placed.record.reason
        try:
            return self._build(placed.record, self._position)
        except ItemProblemError as problem:
            return str(problem)

    def _known(self, ids: list[str]) -> dict[str, ItemRow]:
        """The items of these ids that the run has already."""
        store = self._run.store
        seqs = store.items.lookup(self._run.id, ids)
        rows = store.items.by_seqs(self._run.id, list(seqs.values()))
        return {item_id: rows[seq] for item_id, seq in seqs.items()}

    def _repeated(self, built: Built, placed: Placed, known: dict[str, ItemRow], lines: dict[str, int]) -> str | None:
        """What is wrong with an id that is taken; `SEEN` where it is the same record once more."""
        first = lines.get(built.id)
        row = known.get(built.id)
        if first is None and row is None:
            return None
        if row is None or row.seq > self._before:
            line = first if row is None else row.line
            return f"id {built.id!r} stands twice: lines {line} and {placed.record.line}"
        if row.offset is None or row.length is None:
            return SEEN  # too large then, and now
        if self._run.form.split(read_line(self._read, row.offset, row.length)) == (built.endpoint, built.body):
            return SEEN
        return f"id {built.id!r} was planned before with another request (line {row.line})"

    def _was_bad(self, position: int, placed: Placed) -> bool:
        """Whether a bad record is one of an earlier reading, at the same place."""
        if position > self._before:
            return False
        row = self._run.store.items.by_seqs(self._run.id, [position]).get(position)
        return row is not None and row.offset is None and row.line == placed.record.line

    def _spooled(self, built: Built, placed: Placed) -> NewItem | None:
        """The row of a request that is in the spool; None where it is too large for the provider."""
        run = self._run
        line = run.form.head(run.wire_id(built.id, self._seq, NO_BATCH), built.endpoint) + built.body + b"}"
        if len(line) > self._limit:
            return None
        offset = self._spool.append(line)
        size = len(line)
        self._chunk.append(Member(self._seq, built.id, offset, size, built.tokens, 0, 0))
        state = ItemState.OPEN
        where = (placed.record.line, placed.source)
        return (self._seq, built.id, *where, offset, size, built.tokens, None, state, None, None, None)

    def _store(self, rows: list[NewItem], refused: list[Problem]) -> None:
        """The spool on the disk, the lines of bad records after all others, then the rows in one transaction."""
        run = self._run
        self._spool.sync()
        end = None
        if refused:
            self._settle()
            for problem in refused:
                offset, length = run.errors.append(problem_line(problem))
                where = (problem.line, problem.source)
                failed = (ItemState.FAILED, Outcome.ERRORED, offset, length)
                rows.append((problem.seq, problem.id, *where, None, None, 0, None, *failed))
                self._say(problem)
            run.errors.sync()
            end = run.errors.end
        run.store.items.extend(run.id, rows, failed=len(refused), errors_end=end, at=run.ctx.now())

    def _say(self, problem: Problem) -> None:
        self._bad += 1
        if self._bad <= SHOWN:
            self._run.emit("item.refused", f"not sent: {problem}", level=Level.WARNING)


SEEN = "seen"
