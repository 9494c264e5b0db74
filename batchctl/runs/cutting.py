"""Reads the input, builds requests and cuts them into batches; where the rows go is the sink's affair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, repeat
from operator import sub
from typing import Protocol

import msgspec

from batchctl.core.errors import InputError
from batchctl.core.model import ItemState, Outcome
from batchctl.core.packing import Packer
from batchctl.files.readers import BadRecord, Block, Record, Source
from batchctl.providers.base import BatchLimits
from batchctl.runs.building import Builder, Built, BuiltBlock, ItemProblemError
from batchctl.runs.problems import SHOWN, Problem, Problems, bad_input
from batchctl.state.rows import NewItem

CHUNK_ROWS = 20_000
MOST_COUNTED = 1_000  # bad records after which an input that will be refused is read no further
OPEN, FAILED, ERRORED = str(ItemState.OPEN), str(ItemState.FAILED), str(Outcome.ERRORED)


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

    def add(self, first_seq: int, requests: int, size: int, tokens: int) -> None:
        """Add requests that follow one another, of `size` bytes with their newlines."""
        if not self.requests:
            self.first_seq = first_seq
        self.last_seq = first_seq + requests - 1
        self.requests += requests
        self.size += size
        self.tokens += tokens


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


class Sink(Protocol):
    """Where planned requests go."""

    def line(self, request: bytes) -> int:
        """Keep one request line; returns its offset."""
        ...

    def lines(self, requests: list[bytes]) -> int:
        """Keep request lines, each with its newline; returns the offset of the first."""
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
        wire_ids: custom ids from (item ids that follow one another, first seq, batch number).
        head: bytes of a line before the body, from (custom id, endpoint).
        skip_bad: bad records become failed items; without it they are only counted and named.
        id_room: bytes a line may grow by when it goes into another batch, because its custom id names the batch.
    """

    def __init__(
        self,
        *,
        build: Builder,
        limits: BatchLimits,
        wire_ids: Callable[[Sequence[str], int, int], list[str]],
        head: Callable[[str, str], bytes],
        sink: Sink,
        skip_bad: bool,
        id_room: int,
    ) -> None:
        self._build = build
        self._limits = limits
        self._wire_ids = wire_ids
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
            for part in source.blocks():
                if isinstance(part, Block):
                    self._take_block(part, index, source)
                else:
                    self._take(part, index, source.path)
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

    def _take_block(self, block: Block, index: int, source: Source) -> None:
        """Take a block of lines as a whole where nothing about it is special, else one by one."""
        built = self._build.block(block, self._seq + 1)
        if built is None or not self._place_all(built, block, index, source.path):
            for record in source.records(block):
                self._take(record, index, source.path)

    def _place_all(self, built: BuiltBlock, block: Block, source: int, path: str) -> bool:
        """Put a whole block into the current batch; false, and nothing done, where it or its ids need a closer look."""
        group = self._group_of(built)
        places, first = self._first, self._seq + 1
        if group not in self._groups or not places.keys().isdisjoint(built.ids):
            return False
        if self._seq < CHUNK_ROWS and len(set(built.ids)) < block.count:
            return False
        packer, batch = self._groups[group]
        lines = self._lines(built, first, batch.number)
        sizes = list(map(len, lines))
        size = sum(sizes)
        room = size + block.count * (self._id_room - 1)
        if max(sizes) - 1 > self._most_bytes or not packer.add_all(block.count, room):
            return False
        if self._seq < CHUNK_ROWS:
            places.update(zip(built.ids, zip(repeat(path), count(block.line)), strict=False))
        offsets = accumulate(sizes, initial=self._sink.lines(lines))
        self._seq += block.count
        batch.add(first, block.count, size, sum(built.tokens))
        self.cut.repaired += built.repaired
        self._pending += zip(  # some of them never end
            count(first),
            built.ids,
            count(block.line),
            repeat(source),
            offsets,
            map(sub, sizes, repeat(1)),
            built.tokens,
            repeat(batch.number),
            repeat(OPEN),
            repeat(None),
            repeat(None),
            repeat(None),
        )
        return True

    def _lines(self, built: BuiltBlock, first_seq: int, batch: int) -> list[bytes]:
        wire_ids = msgspec.json.encode(self._wire_ids(built.ids, first_seq, batch))
        head, _, middle = self._head("", built.endpoint).partition(b'""')
        before, between = head + b'"', b'"' + middle
        # Inside a JSON string each quote has a backslash before it, so this cuts between strings alone.
        ids = wire_ids[2:-2].split(b'","')
        return list(map(b"".join, zip(repeat(before), ids, repeat(between), *built.columns, repeat(b"}\n"))))

    def _take(self, record: Record | BadRecord, source: int, path: str) -> None:
        self._seq += 1
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
        group = self._group_of(built)
        packer, batch = self._groups.get(group) or self._new_group(group, built.model)
        seq = self._seq
        request = self._request(built, batch.number)
        size = len(request)
        if size > self._most_bytes:
            self._oversize(built, size, line, source, path)
            return
        if packer.add(size + self._id_room) and batch.requests:
            batch = self._new_batch(group, packer, built.model)
            request = self._request(built, batch.number)
            size = len(request)
        offset = self._sink.line(request)
        batch.add(seq, 1, size + 1, built.tokens)
        if built.repaired:
            self.cut.repaired += 1
        self._pending.append(
            (seq, built.id, line, source, offset, size, built.tokens, batch.number, OPEN, None, None, None)
        )

    def _group_of(self, built: Built | BuiltBlock) -> object:
        return (built.endpoint, built.model) if self._limits.one_model else built.endpoint

    def _request(self, built: Built, batch: int) -> bytes:
        (wire_id,) = self._wire_ids((built.id,), self._seq, batch)
        return self._head(wire_id, built.endpoint) + built.body + b"}"

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
