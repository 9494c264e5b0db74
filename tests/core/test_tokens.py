"""Token estimates, and what answers teach about them."""

from __future__ import annotations

import base64

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchctl.core.tokens import PART_TOKENS, TokenRatio, estimate_tokens

IMAGE = base64.b64encode(bytes(range(256)) * 4096).decode()


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("The quick brown fox jumps over the lazy dog. " * 100, 900, 1300),
        ("机器学习模型的输入" * 100, 600, 1200),
        ("Съешь ещё этих мягких французских булок. " * 100, 1100, 2800),
        ("<|endoftext|>" * 10, 20, 80),
        ("", 1, 1),
    ],
)
def test_estimates_are_near(text: str, low: int, high: int) -> None:
    """Text of any script is estimated by its bytes, special tokens as plain text (field reports 135, 137)."""
    assert low <= estimate_tokens(msgspec.json.encode(text)) <= high


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{IMAGE}"}},
        {"type": "file", "file": {"file_data": f"data:application/pdf;base64,{IMAGE}"}},
        {"type": "input_audio", "input_audio": {"data": IMAGE, "format": "wav"}},
    ],
)
def test_binary_parts_count_a_fixed_number(part: object) -> None:
    """A megabyte of image is not a quarter million tokens, also with escaped slashes (field report 134)."""
    body = msgspec.json.encode({"messages": [{"content": ["describe", part, part]}]})
    for written in (body, body.replace(b"/", b"\\/")):
        assert 2 * PART_TOKENS < estimate_tokens(written) < 2 * PART_TOKENS + 150


@given(st.binary())
def test_any_bytes_have_tokens(body: bytes) -> None:
    """An estimate never fails and is never zero (field report 137)."""
    assert estimate_tokens(body) >= 1


def test_the_ratio_is_learned() -> None:
    """Estimates become right with the answers, and follow when the texts change."""
    ratio = TokenRatio()
    assert (ratio.value, ratio.correct(100), ratio.correct(0)) == (1.0, 100, 1)
    ratio.learn(100, 130)
    assert ratio.correct(1000) == 1300
    for _ in range(500):
        ratio.learn(100, 80)
    assert ratio.correct(1000) == pytest.approx(800, abs=5)
    before = ratio.value
    ratio.learn(0, 50)
    ratio.learn(50, 0)
    assert ratio.value == before
