"""Bodies that are serialised once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.body import BodyMaker, json_string

PROMPT, SYSTEM = "\x02prompt\x03", "\x02system\x03"
texts = st.text(st.characters(exclude_categories=["Cs"]))


def body(*, system_first: bool, system: str | None, prompt: str) -> dict[str, Any]:
    """A body with its system prompt before or after the prompt."""
    messages = {"messages": [{"role": "user", "content": prompt}]}
    if system is None:
        return {"model": "m"} | messages
    return {"system": system} | messages if system_first else messages | {"system": system, "n": 1}


@given(texts)
def test_json_strings_read_back(text: str) -> None:
    """The inside of a JSON string is what a JSON reader makes the text of."""
    assert json.loads(b'"' + json_string(text) + b'"') == text


def test_a_lone_surrogate_is_refused() -> None:
    """No body with half a character is ever sent (field report 15)."""
    with pytest.raises(ValueError, match="surrogates"):
        json_string("abc \ud83d xyz")


@given(texts, st.none() | texts, st.booleans())
def test_the_made_body_is_the_serialised_one(prompt: str, system: str | None, system_first: bool) -> None:
    """Cutting and joining gives the same value as building the body anew."""
    maker = BodyMaker(
        body(system_first=system_first, system=None if system is None else SYSTEM, prompt=PROMPT),
        PROMPT,
        None if system is None else SYSTEM,
    )
    made = maker.make(json_string(prompt), None if system is None else json_string(system))
    assert json.loads(made) == body(system_first=system_first, system=system, prompt=prompt)


@pytest.mark.parametrize(
    "wrong", [{}, {"a": PROMPT, "b": PROMPT}, {"a": f"say {PROMPT}"}, {"a": PROMPT, "b": f"{PROMPT}!"}]
)
def test_a_slot_stands_exactly_once(wrong: dict[str, Any]) -> None:
    """A body in which the prompt's place is not certain is refused."""
    with pytest.raises(ValueError, match="exactly once"):
        BodyMaker(wrong, PROMPT)


def test_the_system_slot_stands_too() -> None:
    """A body without the place of an asked-for system prompt is refused."""
    with pytest.raises(ValueError, match="exactly once"):
        BodyMaker({"a": PROMPT}, PROMPT, SYSTEM)


def test_a_system_prompt_is_given_where_it_has_a_place() -> None:
    """No body goes out with a slot still in it, and no system prompt is dropped."""
    with pytest.raises(ValueError, match="exactly when"):
        BodyMaker({"a": PROMPT}, PROMPT).make(b"p", b"s")
    with pytest.raises(ValueError, match="exactly when"):
        BodyMaker({"a": PROMPT, "b": SYSTEM}, PROMPT, SYSTEM).make(b"p")
