"""Custom ids: one to one, whatever the items are called."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.ids import Foreign, Generated, Own, custom_id, id_text, intent_key, resolve, tagged_id

TOKEN = "a1b2c3d4"
OTHER = "zzzzzzzz"
ANTHROPIC = r"[a-zA-Z0-9_-]{1,64}"
OPENAI = r"[!-~](?:[ -~]{0,62}[!-~])?"

tokens = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=8, max_size=8)
patterns = st.sampled_from([ANTHROPIC, OPENAI])
ids = st.one_of(
    st.text(min_size=1, max_size=90),
    st.from_regex(rf"\A(?:{ANTHROPIC})\Z"),
    st.builds(lambda tail: f"bctl-{tail}", st.text("abz019-", max_size=30)),
    st.builds("bctl-{}-{}".format, tokens, st.integers(0, 99)),
)
seqs = st.integers(0, 10**12)


@pytest.mark.parametrize("item_id", ["007", "7", "a_b", "x" * 64])
def test_an_accepted_id_is_sent_as_it_is(item_id: str) -> None:
    """What the provider takes stays readable; `007` and `7` stay two items (field report 12)."""
    assert custom_id(item_id, 3, TOKEN, ANTHROPIC) == item_id
    assert resolve(item_id, TOKEN) == Own(item_id)


@pytest.mark.parametrize(
    "item_id", ["a/b", "a.b", "a b", "x" * 80, "café", "🙂", "abc\n", f"bctl-{TOKEN}-1", "bctl-", "bctl-anything"]
)
def test_any_other_id_gets_a_generated_one(item_id: str) -> None:
    """Ids the provider refuses, and ids that look generated, are replaced and found again (field reports 24, 25)."""
    wire = custom_id(item_id, 3, TOKEN, ANTHROPIC)
    assert re.fullmatch(ANTHROPIC, wire)
    assert resolve(wire, TOKEN) == Generated(3)


@given(st.lists(ids, unique=True, max_size=20), st.integers(0, 10**6), patterns, tokens)
def test_different_items_never_share_a_custom_id(items: list[str], first: int, pattern: str, token: str) -> None:
    """Custom ids are injective over items of any name, and resolve to the item they were made for (field report 20)."""
    numbered = dict(enumerate(items, start=first))
    wire = {custom_id(item, seq, token, pattern): (seq, item) for seq, item in numbered.items()}
    assert len(wire) == len(items)
    for sent, (seq, item) in wire.items():
        assert re.fullmatch(pattern, sent)
        assert resolve(sent, token) in (Own(item), Generated(seq))


@given(tokens, st.integers(0, 10**9), seqs)
def test_a_tagged_id_names_batch_and_item(token: str, batch: int, seq: int) -> None:
    """A tagged id is accepted everywhere and resolves to its item."""
    wire = tagged_id(token, batch, seq)
    assert re.fullmatch(ANTHROPIC, wire)
    assert resolve(wire, token) == Generated(seq)
    assert wire.split("-")[-2:] == [str(batch), str(seq)]


@given(ids)
def test_resolve_accepts_nothing_but_what_was_made(wire: str) -> None:
    """A custom id resolves to a generated one only if it is spelled exactly as made."""
    match resolve(wire, TOKEN):
        case Own(item_id):
            assert item_id == wire
            assert not wire.startswith("bctl-")
        case Generated(seq):
            assert re.fullmatch(rf"bctl-{TOKEN}-((0|[1-9][0-9]*)-)?{seq}", wire)
        case Foreign():
            assert wire.startswith("bctl-")


@pytest.mark.parametrize(
    "wire",
    [
        f"bctl-{OTHER}-1",
        f"bctl-{TOKEN}-",
        f"bctl-{TOKEN}-01",
        f"bctl-{TOKEN}-1-2-3",
        f"bctl-{TOKEN}-٣",
        "bctl-x",
        f"bctl-{TOKEN}-{'9' * 5000}",
    ],
)
def test_other_generated_ids_are_foreign(wire: str) -> None:
    """Ids of another run, and ids nobody made, belong to no item (field report 22)."""
    assert resolve(wire, TOKEN) == Foreign()


@given(tokens, st.integers(0, 10**9), st.integers(0, 2**32))
def test_an_intent_key_fits_everywhere(token: str, batch: int, nonce: int) -> None:
    """An intent key goes into metadata, file names and lists, and is never taken for an item's custom id."""
    key = intent_key(token, batch, nonce)
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", key)
    assert resolve(key, token) == Foreign()


@pytest.mark.parametrize(
    ("value", "text"), [("007", "007"), (7, "7"), (-3, "-3"), (10**30, "1" + "0" * 30), (" a ", " a ")]
)
def test_id_values_become_opaque_strings(value: object, text: str) -> None:
    """Strings stay as they are, whole numbers are written in decimal (field report 12)."""
    assert id_text(value) == text


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (True, "true or false"),
        (1.0, "decimal"),
        (None, "null"),
        ([1], "plain"),
        ("", "empty"),
        ("x" * 513, "513"),
        ("a\0b", "NUL"),
        ("\ud83d", "Unicode"),
    ],
)
def test_other_id_values_are_refused_with_the_reason(value: object, reason: str) -> None:
    """An id that cannot be kept exactly is refused."""
    with pytest.raises(ValueError, match=reason):
        id_text(value)
