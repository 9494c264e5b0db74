"""Fingerprints, and the refusal that names what differs."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.fingerprint import differences, fingerprint

scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
settings = st.dictionaries(st.sampled_from(["model", "prompt", "params", "n"]), values)


@given(settings, settings)
def test_differences_and_fingerprints_agree(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Something is named as different exactly when the fingerprints differ, in both directions (field report 175)."""
    assert re.fullmatch("[0-9a-f]{12}", fingerprint(old))
    assert (fingerprint(old) == fingerprint(new)) == (not differences(old, new)) == (not differences(new, old))
    assert all(was != now for _, was, now in differences(old, new))


@given(settings)
def test_order_and_absence_do_not_matter(values: dict[str, Any]) -> None:
    """The same settings in another order, or with a later release's new optional setting, are the same run."""
    again = dict(reversed(values.items())) | {"new": None}
    assert fingerprint(again) == fingerprint(values)


def test_tuples_are_lists() -> None:
    """Settings read back from JSON are the ones that were stored."""
    assert fingerprint({"betas": ("a", "b")}) == fingerprint({"betas": ["a", "b"]})
    assert differences({"betas": ("a",)}, {"betas": ["a"]}) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({"model": "a"}, {"model": "b"}, [("model", "a", "b")]),
        ({"model": "a"}, {}, [("model", "a", "not given")]),
        ({"params": {"t": 1, "k": 2}}, {"params": {"t": 0, "k": 2}}, [("params.t", "1", "0")]),
        ({"params": {"t": 1}}, {"params": None}, [("params", '{"t":1}', "not given")]),
        ({"params": {"t": None}}, {"params": {}}, [("params", '{"t":null}', "{}")]),
        ({"n": 1}, {"n": True}, [("n", "1", "true")]),
        ({"n": 1}, {"n": "1"}, [("n", "1", '"1"')]),
    ],
)
def test_short_values_are_shown(old: dict[str, Any], new: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    """Field, old and new value are named (field reports 174, 175)."""
    assert differences(old, new) == expected


def test_long_texts_are_shown_by_digest_and_line() -> None:
    """Of two prompts the first differing line is shown, not the whole."""
    old = "Classify the ticket.\nAnswer with one word.\n{{ text }}"
    new = "Classify the ticket.\n" + "Answer with one word, and do explain at length. " * 3
    [(field, was, now)] = differences({"prompt": old}, {"prompt": new})
    assert field == "prompt"
    assert re.fullmatch(r"text [0-9a-f]{8}, line 2: 'Answer with one word\.'", was)
    assert re.fullmatch(
        r"text [0-9a-f]{8}, line 2: 'Answer with one word, and do explain at length\. Answer with.*…'", now
    )
    [(_, was, now)] = differences({"prompt": "one\ntwo"}, {"prompt": "one"})
    assert was.endswith("line 2: 'two'")
    assert now.endswith("line 2: ends before it")
    assert differences({"prompt": "one\ntwo"}, {})[0][2] == "not given"
