"""Keys come from the SDKs' own variables; they are checked before anything is made or sent, and never stored."""

from __future__ import annotations

import os

from batchctl.core.errors import InputError

VARIABLES = {"anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "openai": ("OPENAI_API_KEY",)}


def find_key(provider: str, given: str | None = None) -> str:
    """The key to send: given, or from the provider's variables.

    Raises:
        InputError: there is none, or it cannot be sent.
    """
    variables = VARIABLES[provider]
    key = given or next((value for name in variables if (value := os.environ.get(name))), None)
    if not key:
        raise InputError(f"no API key: {variables[0]} is not set", hint=f"export {variables[0]}=…, or use --simulate")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(
            f"the API key in {variables[0]} has characters no key has", hint="look for a line break or a space in it"
        )
    return key
