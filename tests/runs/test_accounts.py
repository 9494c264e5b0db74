"""How an account is written down: the same one always in the same words, and no secret in them."""

from __future__ import annotations

import pytest

from batchctl.core.fingerprint import key_hint
from batchctl.providers.sdk import address_of


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("https://api.example.com/v1/", "https://api.example.com/v1"),
        ("https://API.example.com:443/v1", "https://api.example.com/v1"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:8080/a/", "http://[::1]:8080/a"),
        ("https://user:word@api.example.com/v1?key=word#word", "https://api.example.com/v1"),
    ],
)
def test_an_address_is_written_in_one_way(base_url: str, address: str) -> None:
    """Case, default port, closing slash, user and query make no other account, and none of a secret is kept."""
    assert address_of(base_url) == address


def test_parts_of_an_account_are_named() -> None:
    """What headers ask for stands beside the address; what is not asked for does not."""
    assert address_of("https://a.example/v1", organization="org-1", project=None) == (
        "https://a.example/v1, organization org-1"
    )


def test_a_hint_tells_keys_apart_and_nothing_else() -> None:
    """It depends on key and salt, is short, and holds no part of the key."""
    hints = {key_hint(key, salt) for key in ("sk-one-1234567890", "sk-two-1234567890") for salt in ("a", "b")}
    assert len(hints) == 4
    assert all(len(hint) == 12 and int(hint, 16) >= 0 for hint in hints)
    assert key_hint("sk-one-1234567890", "a") == key_hint("sk-one-1234567890", "a")
