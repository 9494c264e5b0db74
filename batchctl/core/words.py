"""Words for people: numbers with their nouns."""

from __future__ import annotations


def counted(count: int, one: str, many: str | None = None) -> str:
    """A number with its noun, such as `1 batch` or `2,000 batches`.

    Args:
        one: the noun for one.
        many: the noun for any other number, where an `s` (or `es`) at its end does not make it.
    """
    plural = many or one + ("es" if one.endswith(("ch", "s", "x")) else "s")
    return f"{count:,} {one if count == 1 else plural}"
