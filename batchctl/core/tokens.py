"""A cheap estimate of the tokens in a request, and what answers teach about it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import add

PART_TOKENS = 1_600  # an inline image or document, whatever its bytes (field report 134)
TOKENS_A_BYTE = 0.25
TOKENS_A_CONTINUATION = 0.15  # more for each further byte of a character: scripts beyond ASCII take more tokens

_CONTINUATION = bytes(range(0x80, 0xC0))
_BINARY = re.compile(rb'"(?:data:[^",]{0,100},)?[A-Za-z0-9+/\\]{256,}={0,2}"')


def estimate_tokens(body: bytes) -> int:
    """Estimate the input tokens of a serialised request body, at least 1; inline base64 parts count a fixed number."""
    tokens = estimate_text(body)
    if body.find(b"base64") >= 0 or body.find(b"input_audio") >= 0:  # `in` first tries bytes as a number, which costs
        for match in _BINARY.finditer(body):
            tokens += PART_TOKENS - (match.end() - match.start()) * TOKENS_A_BYTE
    return max(1, round(tokens))


def estimate_text(text: bytes) -> float:
    """Estimate the tokens of text as it stands in JSON.

    Bytes are counted, no text is interpreted, so no text can upset it (field report 137).
    """
    return len(text) * TOKENS_A_BYTE + continuation_bytes(text) * TOKENS_A_CONTINUATION


def estimate_texts(columns: Sequence[Sequence[bytes]], before: int, size: int, continuation: int) -> list[int]:
    """The whole tokens of many texts, each joined across columns; a loop of its own, because millions pass.

    Args:
        before: tokens of each to begin with.
        size, continuation: bytes that each has besides the columns, and how many of them continue a character.
    """
    sizes, further = [size] * len(columns[0]), [continuation] * len(columns[0])
    for column in columns:
        sizes = list(map(add, sizes, map(len, column)))
        if not b"".join(column).isascii():
            more = [0 if text.isascii() else len(text) - len(text.translate(None, _CONTINUATION)) for text in column]
            further = list(map(add, further, more))
    return [
        before + round(size * TOKENS_A_BYTE + more * TOKENS_A_CONTINUATION)
        for size, more in zip(sizes, further, strict=True)
    ]


def continuation_bytes(text: bytes) -> int:
    """How many bytes continue a character that another one began."""
    return 0 if text.isascii() else len(text) - len(text.translate(None, _CONTINUATION))


class TokenRatio:
    """Learns how many tokens an estimated token really is; recent and large requests weigh most.

    Args:
        weight: share of one answer in what is known, from 0 to 1.
    """

    def __init__(self, weight: float = 0.02) -> None:
        self._keep = 1 - weight
        self._estimated = 0.0
        self._actual = 0.0

    @property
    def value(self) -> float:
        """Actual tokens per estimated token; 1 until something is known."""
        return self._actual / self._estimated if self._estimated else 1.0

    def learn(self, estimated: int, actual: int) -> None:
        """Take in one answer; one without tokens says nothing."""
        if estimated > 0 and actual > 0:
            self._estimated = self._estimated * self._keep + estimated
            self._actual = self._actual * self._keep + actual

    def correct(self, estimated: int) -> int:
        """The estimate in real tokens, at least 1."""
        return max(1, round(estimated * self.value))
