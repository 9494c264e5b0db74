"""Addresses of APIs, checked before anything is made: what is in one is stored with the run and shown."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from batchctl.core.errors import InputError

VARIABLES = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}


def check_address(provider: str, base_url: str | None) -> None:
    """Refuse a base URL, given or in the provider's own variable, that is no plain address.

    Raises:
        InputError: it is none, or holds a user, a password or a query; the text does not repeat it.
    """
    name = "--base-url" if base_url else VARIABLES[provider]
    url = base_url or os.environ.get(VARIABLES[provider])
    if not url:
        return
    try:
        parts = urlsplit(url)
        plain = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        plain = False
    if not plain:
        raise InputError(f"{name} is no address", hint="give one such as https://gateway.example.com/v1")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InputError(
            f"{name} holds a user, a password or a query, which would be stored, shown and sent beside the key",
            hint="take them out; the key comes from its own variable",
        )
