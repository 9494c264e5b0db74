"""Where the sync lane sends and with which headers: what the SDKs' clients would do, without importing them.

Importing an SDK takes longer than finding the place among a million items. A test holds both against each other.
"""

from __future__ import annotations

import os

from batchctl import __version__

ANTHROPIC_VERSION = "2026-10-21"  # of the API these requests and answers are read by
_USUAL = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": f"batchctl/{__version__}"}


def anthropic_target(base_url: str | None, key: str) -> tuple[str, dict[str, str]]:
    """Base URL and headers for Anthropic; None leaves the address to ANTHROPIC_BASE_URL."""
    url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or "https://api.anthropic.com"
    version = {"anthropic-version": ANTHROPIC_VERSION}
    return url, _USUAL | version | _custom("ANTHROPIC_CUSTOM_HEADERS") | _bearer(key)


def openai_target(base_url: str | None, key: str) -> tuple[str, dict[str, str]]:
    """Base URL and headers for OpenAI; None leaves the address to OPENAI_BASE_URL."""
    url = base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
    named = {
        "OpenAI-Organization": os.environ.get("OPENAI_ORG_ID"),
        "OpenAI-Project": os.environ.get("OPENAI_PROJECT_ID"),
    }
    owner = {name: value for name, value in named.items() if value is not None}
    return url, _USUAL | owner | _custom("OPENAI_CUSTOM_HEADERS") | _bearer(key)


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _custom(variable: str) -> dict[str, str]:
    """Headers a person sets for every call, one `name: value` a line."""
    lines = (line.partition(":") for line in os.environ.get(variable, "").split("\n"))
    return {name.strip(): value.strip() for name, colon, value in lines if colon}
