"""Reads the input, builds requests and cuts them into batches; where the rows go is the sink's affair."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from batchctl.core.errors import InputError
from batchctl.core.model import ItemState, Outcome
from batchctl.core.packing import Packer
from batchctl.files.readers import BadRecord, Record, Source
from batchctl.providers.base import BatchLimits
from batchctl.runs.building import Built, ItemProblemError
from batchctl.state.rows import NewItem

CHUNK_ROWS = 20_000
MOST_COUNTED = 1_000  # bad records after which an input that will be refused is read no further
FIELDS_NAMED = 15
LINES_NAMED = 3
SHOWN = 20  # problems that are told to people
OPEN, FAILED, ERRORED = str(ItemState.OPEN), str(ItemState.FAILED), str(Outcome.ERRORED)


@dataclass(frozen=True, slots=True)
class Problem:
    """One record that cannot be sent, by file and line; `seq` is its place in the run.

    Args:
        fields: the names that are there, where one is missing.
    """

    seq: int
    source: int
    path: str
    line: int
    reason: str
    id: str | None = None
    type: str = "bad_input"
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        item = "" if self.id is None else f"item {self.id!r}: "
        return f"{self.path} line {self.line}: {item}{self.reason}{self.fields_there}"

    @property
    def fields_there(self) -> str:
        """What a record has instead of what it lacks."""
        if not self.fields:
            return ""
        more = f" and {len(self.fields) - FIELDS_NAMED} more" if len(self.fields) > FIELDS_NAMED else ""
        return f"; its fields: {', '.join(name[:60] for name in self.fields[:FIELDS_NAMED])}{more}"


@dataclass(slots=True)
class Problems:
    """Records of one file that cannot be sent for one and the same reason."""

    first: Problem
    count: int = 0
    lines: list[int] = field(default_factory=list)  # the first ones

    def add(self, problem: Problem) -> None:
        """Count one more."""
        self.count += 1
        if len(self.lines) < LINES_NAMED:
            self.lines.append(problem.line)

    def __str__(self) -> str:
        if self.count == 1:
            return str(self.first)
        more = self.count - len(self.lines)
        lines = ", ".join(map(str, self.lines)) + (f" and {more:,} more" if more else "")
        first = self.first
        return f"{self.count:,} records, {first.path} lines {lines}: {first.reason}{first.fields_there}"


@dataclass(slots=True)
class PlannedBatch:
    """A batch cut from the input, not sent yet."""

    number: int
    model: str | None
    first_seq: int
    last_seq: int
    requests: int = 0
    size: int = 0
    tokens: int = 0


@dataclass(slots=True)
class Cut:
    """What came of reading the whole input."""

    items: int = 0
    size: int = 0
    tokens: int = 0
    bad: int = 0
    oversize: int = 0
    repaired: int = 0
    problems: list[Problems] = field(default_factory=list)  # the first kinds, for people
    batches: list[PlannedBatch] = field(default_factory=list)
    inputs: list[dict[str, object]] = field(default_factory=list)


def bad_input(problems: list[Problems], count: str) -> InputError:
    """The refusal that names the first bad records by file and line, those alike together."""
    lines = "\n".join(f"  {problem}" for problem in problems)
    return InputError(
        f"{count} bad record{'' if count == '1' else 's'} in the input; nothing was sent:\n{lines}",
        hint="correct them, or give --skip-bad to send the rest and find these in errors.jsonl",
    )


class Sink(Protocol):
    """Where planned requests go."""

    def line(self, request: bytes) -> int:
        """Keep one request line; returns its offset."""
        ...

    def bad(self, problem: Problem) -> tuple[int, int]:
        """Keep a record that cannot be sent; returns offset and length of its error line."""
        ...

    def rows(self, items: list[NewItem]) -> None:
        """Keep the rows of a chunk."""
        ...


class Cutter:
    """One pass over the input in constant memory.

    Args:
        wire_id: custom id from (item id, seq, batch number).
        head: bytes of a line before the body, from (custom id, endpoint).
        skip_bad: bad records become failed items; without it they are only counted and named.
        id_room: bytes a line may grow by when it goes into another batch, because its custom id names the batch.
    """

    def __init__(
        self,
        *,
        build: Callable[[Record, int], Built],
        limits: BatchLimits,
        wire_id: Callable[[str, int, int], str],
        head: Callable[[str, str], bytes],
        sink: Sink,
        skip_bad: bool,
        id_room: int,
    ) -> None:
        self._build = build
        self._limits = limits
        self._wire_id = wire_id
        self._head = head
        self._sink = sink
        self._skip_bad = skip_bad
        self._id_room = id_room
        most = limits.bytes - limits.envelope_bytes - limits.separator_bytes - id_room
        self._most_bytes = min(most, limits.request_bytes)  # of one request
        self._groups: dict[object, tuple[Packer, PlannedBatch]] = {}
        self._pending: list[NewItem] = []
        self._seq = 0
        self._first: dict[str, tuple[str, int]] = {}  # where ids of the first chunk stand; the store compares the rest
        self._kinds: dict[tuple[int, str], Problems] = {}
        self.cut = Cut()

    def read(self, sources: Iterable[Source]) -> Cut:
        """Read every source to its end.

        Raises:
            InputError: the input holds no item, or a file cannot be read.
        """
        for index, source in enumerate(sources):
            for record in source:
                self._seq += 1
                self._take(record, index, source.path)
                if len(self._pending) >= CHUNK_ROWS:
                    self._flush()
            self.cut.inputs.append(
                {
                    "path": source.path,
                    "bytes": source.bytes_read,
                    "sha256": source.sha256,
                    "modified_ns": source.modified_ns,
                }
            )
        if not self._seq:
            raise InputError("the input has no items", hint="every line was blank, or the file holds only a header")
        self._flush()
        batches = self.cut.batches = [batch for batch in self.cut.batches if batch.requests]
        self.cut.items = sum(batch.requests for batch in batches)
        self.cut.size = sum(batch.size for batch in batches)
        self.cut.tokens = sum(batch.tokens for batch in batches)
        return self.cut

    def _take(self, record: Record | BadRecord, source: int, path: str) -> None:
        line = record.line
        if isinstance(record, BadRecord):
            self._refuse(line, source, path, record.reason)
            return
        try:
            built = self._build(record, self._seq)
        except ItemProblemError as problem:
            item_id = problem.id
            if item_id in self._first:
                item_id = None  # refused as a second one of its id: an id stands in the files once
            elif item_id is not None and self._seq <= CHUNK_ROWS:
                self._first[item_id] = (path, line)
            self._refuse(line, source, path, problem.reason, item_id, problem.fields)
            return
        first = self._first.get(built.id)
        if first is not None:  # both places are named as far as memory stays bounded (field report 19)
            other = f"lines {first[1]} and" if first[0] == path else f"{first[0]} line {first[1]} and here, line"
            self._refuse(line, source, path, f"id {built.id!r} stands twice: {other} {line}")
            return
        if self._seq <= CHUNK_ROWS:
            self._first[built.id] = (path, line)
        self._place(built, line, source, path)

    def _place(self, built: Built, line: int, source: int, path: str) -> None:
        group = (built.endpoint, built.model) if self._limits.one_model else built.endpoint
        packer, batch = self._groups.get(group) or self._new_group(group, built.model)
        seq = self._seq
        request = self._head(self._wire_id(built.id, seq, batch.number), built.endpoint) + built.body + b"}"
        size = len(request)
        if size > self._most_bytes:
            self._oversize(built, size, line, source, path)
            return
        if packer.add(size + self._id_room) and batch.requests:
            batch = self._new_batch(group, packer, built.model)
            request = self._head(self._wire_id(built.id, seq, batch.number), built.endpoint) + built.body + b"}"
            size = len(request)
        offset = self._sink.line(request)
        if not batch.requests:
            batch.first_seq = seq
        batch.last_seq = seq
        batch.requests += 1
        batch.size += size + 1
        batch.tokens += built.tokens
        if built.repaired:
            self.cut.repaired += 1
        self._pending.append(
            (seq, built.id, line, source, offset, size, built.tokens, batch.number, OPEN, None, None, None)
        )

    def _new_group(self, group: object, model: str | None) -> tuple[Packer, PlannedBatch]:
        limits = self._limits
        packer = Packer(limits.requests, limits.bytes, limits.envelope_bytes, limits.separator_bytes)
        return packer, self._new_batch(group, packer, model)

    def _new_batch(self, group: object, packer: Packer, model: str | None) -> PlannedBatch:
        batch = PlannedBatch(len(self.cut.batches) + 1, model, self._seq, self._seq)
        self.cut.batches.append(batch)
        self._groups[group] = (packer, batch)
        return batch

    def _refuse(
        self,
        line: int,
        source: int,
        path: str,
        reason: str,
        item_id: str | None = None,
        fields: tuple[str, ...] = (),
    ) -> None:
        self.cut.bad += 1
        self._keep_problem(Problem(self._seq, source, path, line, reason, item_id, fields=fields))
        if not self._skip_bad and (len(self.cut.problems) >= SHOWN or self.cut.bad >= MOST_COUNTED):
            raise bad_input(self.cut.problems, f"at least {self.cut.bad:,}")

    def _oversize(self, built: Built, size: int, line: int, source: int, path: str) -> None:
        """A request too large on its own is the item's own fault: it fails, the others go on."""
        self.cut.oversize += 1
        reason = f"its request has {size:,} bytes, over the limit of {self._most_bytes:,}"
        self._keep_problem(Problem(self._seq, source, path, line, reason, built.id, "request_too_large"))

    def _keep_problem(self, problem: Problem) -> None:
        kind = self._kinds.get((problem.source, problem.reason))
        if kind is None and len(self.cut.problems) < SHOWN:
            kind = self._kinds[problem.source, problem.reason] = Problems(problem)
            self.cut.problems.append(kind)
        if kind is not None:
            kind.add(problem)
        offset, length = self._sink.bad(problem)
        self._pending.append(
            (
                problem.seq,
                problem.id,
                problem.line,
                problem.source,
                None,
                None,
                0,
                None,
                FAILED,
                ERRORED,
                offset,
                length,
            )
        )

    def _flush(self) -> None:
        if self._pending:
            if self._skip_bad or not self.cut.bad:
                self._sink.rows(self._pending)
            self._pending = []
