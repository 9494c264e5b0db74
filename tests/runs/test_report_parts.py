"""The arithmetic under the report: counting lines, quantiles, bins, axes, escaping."""

from __future__ import annotations

from collections import Counter
from html import unescape
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.runs.page import shown, tag
from batchctl.runs.svg import ticks
from batchctl.runs.tally import MOST_BINS, NAMES_KEPT, Spent, bins_of, lines_of, quantile, tally

LINE = b'{"id":"a","stop_reason":%b,"model":null,"usage":{"input_tokens":3,"output_tokens":%d,"cached_input_tokens":1},'
LENGTHS = st.dictionaries(st.integers(0, 99_999), st.integers(1, 50), min_size=1)


def line(stop: str = "end", tokens: int = 5, round_: int = 0, cost: str = "0.5") -> bytes:
    """A line of results.jsonl."""
    return LINE % (f'"{stop}"'.encode(), tokens) + f'"cost_usd":{cost},"lane":"batch","round":{round_}}}\n'.encode()


def test_a_tally() -> None:
    """Answers are counted by stop reason, length and round; what was spent is summed; bad lines are counted apart."""
    counted = tally([line("end", 5), line("max", 1_234_567, 1, "null"), b'{"id":"b"}\n', b'{"stop_reason":"\xff"}\n'])
    assert (counted.lines, counted.unreadable) == (4, 2)
    assert counted.stop_reasons == {"end": 1, "max": 1}
    assert counted.models == {"none given": 2}
    assert counted.lengths == {5: 1, 1_230_000: 1}
    assert counted.rounds == {("batch", 0): Spent(1, 3, 1, 5, 0.5), ("batch", 1): Spent(1, 3, 1, 1_234_567, 0.0)}


def test_names_without_end_are_counted_together() -> None:
    """A server that makes up a stop reason for every answer takes no memory for it."""
    counted = tally(line(f"stop {number}") for number in range(1_000))
    assert len(counted.stop_reasons) == NAMES_KEPT + 1
    assert counted.stop_reasons["others"] == 1_000 - NAMES_KEPT


@given(st.lists(st.binary().map(lambda part: part.replace(b"\n", b""))), st.integers(1, 9))
def test_lines_come_out_whole(lines: list[bytes], size: int) -> None:
    """However the chunks are cut, the lines are those that were written."""
    data = b"".join(part + b"\n" for part in lines)
    assert list(lines_of(data[at : at + size] for at in range(0, len(data), size))) == lines


@given(LENGTHS)
def test_bins_hold_every_answer(counts: dict[int, int]) -> None:
    """No answer is left out, and the columns stay few enough to be told apart."""
    bins = bins_of(Counter(counts))
    assert sum(entry.height for entry in bins) == sum(counts.values())
    assert len(bins) <= MOST_BINS + 1


@given(LENGTHS, st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_a_length_that_many_do_not_pass(counts: dict[int, int], share: float) -> None:
    """At least the share is at or under it, and less than the share is under it."""
    found, total = quantile(Counter(counts), share), sum(counts.values())
    assert sum(count for length, count in counts.items() if length <= found) >= share * total - 1e-6
    assert sum(count for length, count in counts.items() if length < found) < share * total + 1e-6


@given(st.floats(1.0, 4e8))
def test_ticks_are_few_and_even(span: float) -> None:
    """From nothing to the span, at equal steps."""
    found = ticks(span)
    assert found[0] == 0
    assert found[-1] <= span * 1.000001
    assert 2 <= len(found) <= 9
    assert len({round(right - left, 6) for left, right in pairwise(found)}) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (1234, "1,234"),
        (0.5, "0.5000"),
        ("a\x00\x9b", "a\\x00\\x9b"),
        ("\ud800", "\\ud800"),
        ("ü\n", "ü\n"),
    ],
)
def test_values_as_text(value: object, text: str) -> None:
    """Numbers as people read them; characters that steer are spelt out."""
    assert shown(value) == text


@given(st.text())
def test_an_element_holds_its_text_and_nothing_else(text: str) -> None:
    """Whatever the text and attribute, there is one element with that text."""
    made = tag("p", text, title=text)
    assert made.count("<") == 2
    assert unescape(made.partition(">")[2].removesuffix("</p>")) == shown(text)
