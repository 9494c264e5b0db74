"""What results.jsonl says of itself, counted in one pass over its lines in constant memory."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, field

import msgspec

from batchctl.runs.svg import Bin, round_up

NAMES_KEPT = 50
MOST_BINS = 14


class _Usage(msgspec.Struct, gc=False):
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0


class _Line(msgspec.Struct, gc=False):
    stop_reason: str | None
    model: str | None
    usage: _Usage
    cost_usd: float | None
    lane: str
    round: int


@dataclass(slots=True)
class Spent:
    """What a group of answers took."""

    answers: int = 0
    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def less(self, parts: Iterable[Spent]) -> Spent:
        """What remains without these parts; what rounding leaves of the cost is none."""
        sums = [sum(column) for column in zip(astuple(Spent()), *map(astuple, parts), strict=True)]
        answers, input_, cached, output, cost = (whole - part for whole, part in zip(astuple(self), sums, strict=True))
        return Spent(answers, input_, cached, output, max(round(cost, 9), 0.0))


@dataclass(slots=True)
class Tally:
    """Counts over the lines of a results file.

    Args:
        lengths: answers by output tokens, to three digits.
        rounds: what was spent by lane and round.
        unreadable: lines that are not what was written; the file was changed or damaged.
    """

    lines: int = 0
    unreadable: int = 0
    stop_reasons: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)
    rounds: defaultdict[tuple[str, int], Spent] = field(default_factory=lambda: defaultdict(Spent))

    def add(self, line: _Line) -> None:
        """Count one answer."""
        _count(self.stop_reasons, line.stop_reason)
        _count(self.models, line.model)
        self.lengths[_three_digits(line.usage.output_tokens)] += 1
        spent = self.rounds[line.lane, line.round]
        spent.answers += 1
        spent.input_tokens += line.usage.input_tokens
        spent.output_tokens += line.usage.output_tokens
        spent.cached_input_tokens += line.usage.cached_input_tokens
        spent.cost_usd += line.cost_usd or 0.0


def tally(chunks: Iterable[bytes]) -> Tally:
    """Count the lines of a results file that comes in chunks."""
    counted = Tally()
    decode = msgspec.json.Decoder(_Line).decode
    for line in lines_of(chunks):
        counted.lines += 1
        try:
            counted.add(decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            counted.unreadable += 1
    return counted


def lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their newline, from chunks that end anywhere."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest


def watched(chunks: Iterable[bytes], watch: Callable[[bytes], object]) -> Iterator[bytes]:
    """The same chunks, each shown to `watch` on its way."""
    for chunk in chunks:
        watch(chunk)
        yield chunk


def quantile(lengths: Counter[int], share: float) -> int:
    """The length that `share` of the answers do not pass; 0 without answers."""
    left = share * lengths.total()
    for length in sorted(lengths):
        left -= lengths[length]
        if left <= 0:
            return length
    return 0


def bins_of(lengths: Counter[int]) -> list[Bin]:
    """Equal bins from the shortest to the 99th percentile; the last takes all that is longer."""
    if not lengths:
        return []
    low, high = min(lengths), quantile(lengths, 0.99)
    width = round_up((high - low + 1) / MOST_BINS)
    first, last = low // width, high // width
    counts: Counter[int] = Counter()
    for length, count in lengths.items():
        counts[min(length, high) // width] += count
    bins = [Bin(_bin_label(number * width, width), counts[number]) for number in range(first, last + 1)]
    if max(lengths) >= (last + 1) * width:
        bins[-1] = Bin(f"≥ {last * width:,}", counts[last])
    return bins


def _bin_label(start: int, width: int) -> str:
    return f"{start:,}" if width == 1 else f"{start:,} to {start + width - 1:,}"


def _count(counter: Counter[str], name: str | None) -> None:
    """Count a name that others chose; past fifty different ones the rest are counted together."""
    key = "none given" if name is None else name
    counter[key if key in counter or len(counter) < NAMES_KEPT else "others"] += 1


def _three_digits(number: int) -> int:
    """Rounded to three digits, so that few different ones exist."""
    return number if abs(number) < 1000 else int(float(f"{number:.2e}"))  # noqa: PLR2004  # four digits begin
