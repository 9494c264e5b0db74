"""Replies as JSON, and the schema they must meet."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.errors import InputError
from batchctl.core.reply import ReplyCheck, parse_output

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=8,
)
SCHEMA = {
    "type": "object",
    "required": ["label"],
    "properties": {"label": {"enum": ["a", "b"]}, "n": {"type": "integer"}},
}


@given(values, st.sampled_from(["{}", " {}\n", "```json\n{}\n```", "```\n{}```", "\n```JSON \n{}\n```\n"]))
def test_json_replies_are_read(value: Any, around: str) -> None:
    """A reply that is JSON is read, bare or in one fence."""
    assert parse_output(around.replace("{}", json.dumps(value))) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "card_arrival",
        "NaN",
        "[Infinity]",
        "1e999",
        '"\\ud83d"',
        '{"a": 1} and more',
        "Here: ```json\n{}\n```",
        "```python\n{}\n```",
        "```{}```",
        "``````",
        "\ud83d",
        "[" * 100_000 + "]" * 100_000,
    ],
)
def test_other_replies_are_no_json(text: str) -> None:
    """Text, NaN, half characters and bottomless nesting are no JSON, and none of them raises (field report 14)."""
    assert parse_output(text) is None


@given(st.text())
def test_any_text_is_survived(text: str) -> None:
    """No reply makes the reader raise."""
    parse_output(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"label": "a", "n": 1}', None),
        ('{"label": "c"}', "$.label: 'c' is not one of ['a', 'b']"),
        ('{"label": "a", "n": 1.5}', "$.n: 1.5 is not of type 'integer'"),
        ("{}", "$: 'label' is a required property"),
        ("null", "$: None is not of type 'object'"),
        ("sorry", "the reply is not JSON"),
    ],
)
def test_problems_are_one_line_with_a_place(text: str, problem: str | None) -> None:
    """What is wrong is said with its path in the reply."""
    assert ReplyCheck(SCHEMA).problem(text, parse_output(text)) == problem


def test_no_reply_is_no_json() -> None:
    """An answer without text is not valid, even where null would be."""
    check = ReplyCheck({})
    assert check.problem(None, None) == "the reply is not JSON"
    assert check.problem("null", None) is None


def test_a_long_problem_is_shortened() -> None:
    """A problem never repeats a whole reply."""
    problem = ReplyCheck({"type": "object"}).problem("", ["line\n" * 1000])
    assert problem is not None
    assert len(problem) < 220
    assert "\n" not in problem


def test_deep_replies_are_a_problem_not_a_crash() -> None:
    """A recursive schema and a deep reply do not end the run."""
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    problem = ReplyCheck({"type": "array", "items": {"$ref": "#"}}).problem("", deep)
    assert problem == "the reply is nested too deeply to be checked"


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"type": "thing"}, r"\$\.type"),
        ({"properties": {"a": {"pattern": "("}}}, "pattern"),
        ({"$ref": "https://example.com/schema.json"}, r"example\.com"),
        ({"properties": {"a": {"$ref": "#/$defs/missing"}}}, "missing"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "required": True}, "required"),
    ],
)
def test_a_schema_that_cannot_work_is_refused_at_once(schema: dict[str, Any], word: str) -> None:
    """A bad schema costs nothing, and nothing is fetched for it."""
    with pytest.raises(InputError, match=word) as caught:
        ReplyCheck(schema)
    assert caught.value.hint


def test_references_inside_the_schema_work() -> None:
    """$defs, nested $id and boolean schemas are followed."""
    check = ReplyCheck(
        {
            "$id": "https://example.com/root",
            "$defs": {"n": {"$id": "n", "type": "integer"}, "any": True},
            "items": {"$ref": "n"},
            "maxItems": 2,
        }
    )
    assert check.problem("", [1, 2]) is None
    assert check.problem("", [1, "x"]) == "$[1]: 'x' is not of type 'integer'"
