"""Templates of text and fields alone: one join, or one join of raw JSON tokens that are never decoded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import itemgetter
from typing import Any

import msgspec

from batchctl.core.body import json_string

Render = Callable[[Mapping[str, Any]], str]

_SURROGATE = re.compile(rb"\\(?=u[dD][89a-fA-F])")  # with one byte to begin with the search is faster
_FIRST = itemgetter(slice(1))
_MAYBE_BLANK = (
    b' "\\ntrfbu0123456789abcdefABCDEF'  # the bytes of spaces and of their escapes, with the quotes around
    b"\xc2\x85\xa0\xe1\x9a\xe2\x81\x9f\xe3\x80\x82\x83\x84\x86\x87\x88\x89\x8a\xa8\xa9\xaf"  # Unicode's spaces
)


class TemplateError(ValueError):
    """An item that a template cannot be filled with.

    Args:
        field: the placeholder at fault, None where it is no single one.
    """

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Slot:
    """The place of a field."""

    name: str


Parts = Sequence[str | Slot]


def shown(value: Any) -> str:
    """A field's value as text: strings as they are, null as nothing, all else as compact JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    try:
        return msgspec.json.encode(value).decode()
    except TypeError:
        raise TemplateError(
            f"a value of type {type(value).__name__} cannot be shown (a filter without |list?)"
        ) from None


def missing(field: str, template: str) -> TemplateError:
    """The refusal of an item without a field the template needs."""
    return TemplateError(f"{template} uses {field!r}, which is neither a field of the item nor a --var", field)


def joiner(parts: Parts, template: str) -> Render:
    """What fills in a plain template, many times faster than its engine and with the same result."""
    pieces = [part if isinstance(part, str) else "" for part in parts]
    slots = [(place, part.name) for place, part in enumerate(parts) if isinstance(part, Slot)]

    def render(fields: Mapping[str, Any]) -> str:
        filled = pieces.copy()
        for place, name in slots:
            try:
                value = fields[name]
            except KeyError:
                raise missing(name, template) from None
            filled[place] = value if type(value) is str else shown(value)
        return "".join(filled)

    return render


class Spliced(msgspec.Struct, gc=False):
    """Raw JSON tokens of the items of some lines, each column in the order of the lines.

    Args:
        ids: the JSON of each id; none where no field was asked for.
        columns: for each slot of the template the insides of its JSON strings.
        odd: places of items that need the slow way; what the columns hold for them means nothing.
    """

    ids: list[bytes]
    columns: list[list[bytes]]
    odd: list[int]


class Splicer:
    """Fills a plain template with the raw JSON tokens of items, giving the insides of JSON strings.

    Lines are taken many at a time and column by column, because Python's own loops are what costs most here.

    Args:
        forbidden: names an item must not have.
        id_field: name of the field with an item's id, None where it needs none.

    Attributes:
        layout: what a prompt is joined from: JSON text, or the number of a column.
    """

    def __init__(self, parts: Parts, forbidden: frozenset[str], id_field: str | None) -> None:
        slots = [part.name for part in parts if isinstance(part, Slot)]
        numbers = iter(range(len(slots)))
        self.layout = [json_string(part) if isinstance(part, str) else next(numbers) for part in parts]
        names = list(dict.fromkeys([*([] if id_field is None else [id_field]), *slots, *forbidden]))
        fields = [(f"field_{index}", msgspec.Raw, msgspec.Raw()) for index in range(len(names))]
        item = msgspec.defstruct("Item", fields, rename=dict(zip((field[0] for field in fields), names, strict=True)))
        self._decode = msgspec.json.Decoder(item).decode
        self._slots = [names.index(name) for name in slots]
        self._id = None if id_field is None else names.index(id_field)
        self._forbidden = [names.index(name) for name in forbidden]

    def __call__(self, lines: list[bytes]) -> Spliced | None:
        """The tokens of each item.

        It needs the slow way where a field is missing or no string, holds what may be a lone surrogate (field report
        15), or where all fields may be blank (field report 44).

        Args:
            lines: valid UTF-8.

        Returns:
            None where the lines must be looked at one by one, because one is blank or no object.
        """
        try:
            items = list(map(self._decode, lines))
        except (ValueError, RecursionError):
            return None
        columns = [list(map(bytes, column)) for column in zip(*map(msgspec.structs.astuple, items), strict=True)]
        slots = [columns[index] for index in self._slots]
        odd = self._odd(slots)
        ids = [] if self._id is None else columns[self._id]
        if not all(ids):
            odd.update(place for place, token in enumerate(ids) if not token)
        for index in self._forbidden:
            odd.update(place for place, token in enumerate(columns[index]) if token)
        return Spliced(ids, [[token[1:-1] for token in column] for column in slots], sorted(odd))

    @staticmethod
    def _odd(slots: list[list[bytes]]) -> set[int]:
        """Places where a slot's token is no plain string, or where none of them is sure to be more than space."""
        odd: set[int] = set()
        may_be_half = _SURROGATE.search
        blank = list(range(len(slots[0]))) if slots else []
        for column in slots:
            if set(map(_FIRST, column)) != {b'"'}:
                odd.update(place for place, token in enumerate(column) if token[:1] != b'"')
            if may_be_half(b"\n".join(column)):
                odd.update(place for place, token in enumerate(column) if may_be_half(token))
            if blank and all(map(bytes.strip, column, repeat(_MAYBE_BLANK))):
                blank = []
            blank = [place for place in blank if not column[place].strip(_MAYBE_BLANK)]
        return odd.union(blank)
