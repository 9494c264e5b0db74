"""JSON in and out, digests of request bodies, and the token counter."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode

# Transport settings that may differ between two sendings of one item.
_NOT_IDENTITY = ("stream", "service_tier")


def body_digest(body: Any) -> bytes:
    """Digest a request body so that key order, whitespace and transport settings do not matter."""
    if isinstance(body, dict) and ("stream" in body or "service_tier" in body):
        body = {key: value for key, value in body.items() if key not in _NOT_IDENTITY}
    return hashlib.blake2b(_encode_sorted(body), digest_size=16).digest()


def short_hash(*parts: object) -> bytes:
    """Eight bytes that depend on the parts only: the source of every seeded draw."""
    return hashlib.blake2b("\x00".join(map(str, parts)).encode("utf-8", "replace"), digest_size=8).digest()


def draw(*parts: object) -> float:
    """Draw a number in [0, 1) that depends on the parts only."""
    return int.from_bytes(short_hash(*parts), "big") / 2**64


def text_tokens(text: str) -> int:
    """Count tokens as a quarter of the UTF-8 bytes, rounded up."""
    return (len(text.encode("utf-8", "replace")) + 3) // 4
