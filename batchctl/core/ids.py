"""Custom ids: from an item to the id its provider sees and back, one to one by construction.

Everything batchctl makes up starts with `bctl-`, and no item's own id that starts so is ever sent as it is.
So the two kinds cannot meet (field reports 24 and 25).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

PREFIX = "bctl-"
LONGEST_ID = 512  # characters

_NUMBER = "0|[1-9][0-9]{0,18}"


@dataclass(frozen=True, slots=True)
class Own:
    """The custom id is an item's own id."""

    id: str


@dataclass(frozen=True, slots=True)
class Generated:
    """The custom id was made for the item with this sequence number."""

    seq: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """The custom id belongs to no item of this run."""


@lru_cache(maxsize=8)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def custom_id(item_id: str, seq: int, token: str, pattern: str) -> str:
    """The custom id of an item: its own id where the provider takes it, else a generated one.

    Args:
        item_id: the item's own id.
        seq: the item's place in its run.
        token: the run's 8 lowercase letters and digits.
        pattern: regular expression the provider wants a custom id to match in full.
    """
    return custom_ids((item_id,), seq, token, pattern)[0]


def custom_ids(item_ids: Sequence[str], first_seq: int, token: str, pattern: str) -> list[str]:
    """The custom ids of items that follow one another, as `custom_id` makes them."""
    own = _compiled(rf"(?!{PREFIX})(?:{pattern})").fullmatch
    return [item_id if own(item_id) else f"{PREFIX}{token}-{seq}" for seq, item_id in enumerate(item_ids, first_seq)]


def tagged_id(token: str, batch: int, seq: int) -> str:
    """The custom id that also names its batch, so that a lost batch can be recognised for certain."""
    return f"{PREFIX}{token}-{batch}-{seq}"


def resolve(custom_id: str, token: str) -> Own | Generated | Foreign:
    """What a custom id in a result stands for; the exact inverse of `custom_id` and `tagged_id`."""
    if not custom_id.startswith(PREFIX):
        return Own(custom_id)
    match = _compiled(rf"{PREFIX}{token}-(?:(?:{_NUMBER})-)?({_NUMBER})").fullmatch(custom_id)
    return Foreign() if match is None else Generated(int(match[1]))


def intent_key(token: str, batch: int, nonce: int) -> str:
    """The key of one try to create a batch: at most 64 of letters, digits, `_` and `-`.

    Args:
        token: the run's.
        batch: the batch's number in its run.
        nonce: tells this try from every other of the same batch.
    """
    return f"{PREFIX}{token}-b{batch}-{nonce}"


def key_batch(key: str, token: str) -> int | None:
    """The number of the batch an intent key of this run was made for; None for any other key."""
    match = _compiled(rf"{PREFIX}{token}-b({_NUMBER})-\d+").fullmatch(key)
    return None if match is None else int(match[1])


def id_text(value: Any) -> str:
    """An id value of the input as the opaque string it is from here on (field report 12).

    Raises:
        ValueError: neither a string nor a whole number, empty, too long, or not storable as text.
    """
    if type(value) is str and value.isprintable() and 0 < len(value) <= LONGEST_ID:
        return value  # no NUL and no surrogate is printable
    if isinstance(value, bool) or not isinstance(value, str | int):
        kind = {bool: "true or false", float: "a decimal number", type(None): "null"}.get(type(value), "no plain value")
        raise ValueError(f"an id must be a string or a whole number, not {kind}")  # noqa: TRY004  # the data is at fault
    text = str(value)
    if not text:
        raise ValueError("the id is empty")
    if len(text) > LONGEST_ID:
        raise ValueError(f"the id has {len(text)} characters, more than {LONGEST_ID}")
    if "\0" in text:
        raise ValueError("the id holds a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the id is not valid Unicode") from None
    return text
