"""Request bodies: everything but the prompt (and the system prompt) is serialised once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def json_string(text: str) -> bytes:
    """A text as the inside of a JSON string, without the quotes.

    Raises:
        UnicodeEncodeError: the text holds a lone surrogate (field report 15).
    """
    return msgspec.json.encode(text)[1:-1]


class BodyMaker:
    """Puts prompts into a body that is otherwise always the same.

    Args:
        body: the request body with unique strings in the places of prompt and system prompt.
        prompt_slot: the string that stands for the prompt.
        system_slot: the string that stands for the system prompt, None where items do not have one.

    Raises:
        ValueError: a slot does not stand in the body exactly once, as a whole string.
    """

    def __init__(self, body: Mapping[str, Any], prompt_slot: str, system_slot: str | None = None) -> None:
        data = msgspec.json.encode(body)
        self._head, self._tail = _cut(data, prompt_slot)
        self._system_first = False
        self._middle = b""
        self._has_system = system_slot is not None
        if system_slot is None:
            return
        _cut(data, system_slot)
        self._system_first = msgspec.json.encode(system_slot) in self._head
        if self._system_first:
            self._head, self._middle = _cut(self._head, system_slot)
        else:
            self._middle, self._tail = _cut(self._tail, system_slot)

    def make(self, prompt_json: bytes, system_json: bytes | None = None) -> bytes:
        """The body with the insides of two JSON strings put in.

        Raises:
            ValueError: there is a system prompt and no place for it, or the reverse.
        """
        before, after = self.around(system_json)
        return b"".join((before, prompt_json, after))

    def around(self, system_json: bytes | None = None) -> tuple[bytes, bytes]:
        """What stands before and after the prompt, for items that share a system prompt; raises as `make` does."""
        if (system_json is not None) != self._has_system:
            raise ValueError("a body has a place for a system prompt exactly when it is given one")
        if system_json is None:
            return self._head, self._tail
        if self._system_first:
            return self._head + system_json + self._middle, self._tail
        return self._head, self._middle + system_json + self._tail


def _cut(data: bytes, slot: str) -> tuple[bytes, bytes]:
    """What stands before and after a slot, the quotes of its string included."""
    quoted = msgspec.json.encode(slot)
    if data.count(quoted) != 1 or data.count(quoted[1:-1]) != 1:
        raise ValueError(f"{slot!r} must stand in the body exactly once, as a whole string")
    head, _, tail = data.partition(quoted)
    return head + b'"', b'"' + tail
