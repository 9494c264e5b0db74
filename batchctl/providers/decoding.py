"""Reads provider JSON with msgspec Structs that name only the fields needed; shared by both formats."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from batchctl.core.model import Usage
from batchctl.providers.lenient import pruned

T = TypeVar("T")
Number = int | float | None

MESSAGES_ENDPOINT = "/v1/messages"
MOST_TOKENS = 10**9  # of one answer; a larger count is none, and sums of it would not fit the state file
_SURROGATE = re.compile("[\ud800-\udfff]")
_CUSTOM_ID = re.compile(rb'"custom_id"\s*:\s*("(?:[^"\\]|\\.){1,600}")')


class UnreadableResultError(ValueError):
    """A result line that says nothing usable.

    Args:
        custom_id: whose it is, where that much can be told: its answer may have been paid for.
    """

    def __init__(self, reason: str, custom_id: str | None = None) -> None:
        super().__init__(reason)
        self.custom_id = custom_id


def decode(decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
    """Decode a provider's JSON; what only strict readers refuse (half an emoji, a number in quotes) is mended first.

    Raises:
        ValueError: with the reason, where the bytes are not JSON of the shape asked for.
    """
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        strict = error
    try:
        repaired = raw if isinstance(strict, msgspec.ValidationError) else _repaired(raw)
        try:
            return decoder.decode(repaired)
        except msgspec.ValidationError:
            return decoder.decode(msgspec.json.encode(pruned(msgspec.json.decode(repaired), decoder.type)))
    except (ValueError, RecursionError):
        raise ValueError(f"not readable as a result: {strict}") from None


def result_line(decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
    """Decode one line of a result file.

    Raises:
        UnreadableResultError: it is none.
    """
    try:
        return decode(decoder, raw)
    except ValueError as error:
        raise UnreadableResultError(str(error), _id_in(raw)) from None


def _id_in(raw: bytes) -> str | None:
    """The custom id of a line that is not readable as a whole."""
    found = _CUSTOM_ID.search(raw)
    try:
        return None if found is None else msgspec.json.decode(found[1], type=str) or None
    except msgspec.DecodeError:
        return None


def _repaired(raw: bytes) -> bytes:
    """The same JSON with U+FFFD in place of what is not valid Unicode: an answer was paid for (field report 15)."""
    text = json.dumps(json.loads(raw.decode("utf-8-sig", "replace")), ensure_ascii=False)
    return _SURROGATE.sub("\ufffd", text).encode()


def tokens(number: Number) -> int:
    """A count of tokens, where the provider gave one that can be."""
    return int(number) if number and 0 <= number <= MOST_TOKENS else 0


def known(usage: Usage) -> Usage | None:
    """A usage that says something: one of zeros alone was none that can be, and would cost nothing."""
    return usage if usage.input_tokens or usage.output_tokens else None


def json_text(raw: msgspec.Raw) -> str:
    """Raw JSON as text."""
    return bytes(raw).decode()


def parse_request(line: Mapping[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """A finished request line in either provider's batch-file shape as (custom id, endpoint, body).

    Raises:
        ValueError: naming the field that is missing or of the wrong type.
    """
    custom_id = line.get("custom_id")
    if not isinstance(custom_id, str) or not custom_id:
        raise ValueError('no "custom_id" (a non-empty string)')
    endpoint: Any = MESSAGES_ENDPOINT
    if "params" in line:
        name = "params"
    elif "body" in line:
        name, endpoint = "body", line.get("url")
        if line.get("method", "POST") != "POST":
            raise ValueError(f'"method" is {line["method"]!r}, only "POST" can be batched')
        if not isinstance(endpoint, str) or not endpoint.startswith("/"):
            raise ValueError('no "url" (a path such as "/v1/chat/completions")')
    else:
        raise ValueError('neither "params" (Anthropic) nor "url" and "body" (OpenAI)')
    body = line[name]
    if not isinstance(body, dict):
        raise ValueError(f'"{name}" is not an object')  # noqa: TRY004  # the text of an item error
    return custom_id, endpoint, body


def wrapper_problems(body: Mapping[str, Any]) -> list[str]:
    """What belongs to an SDK call or to a stream and is refused inside a body (field report 40)."""
    problems = [
        f'"{name}" is a wrapper of the SDK, not a field of the API: {way}'
        for name, way in _WRAPPERS.items()
        if name in body
    ]
    if body.get("stream"):
        problems.append('"stream" cannot be batched: remove it')
    if not isinstance(body.get("model"), str) or not body["model"]:
        problems.append('no "model": name one with --model')
    return problems


_WRAPPERS = {
    "extra_body": "put its fields into the body itself",
    "extra_headers": "remove it from the body",
    "extra_query": "remove it from the body",
}
