"""Providers by name. Formats are ready at import; adapters, and the SDKs with them, load when one is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from batchctl.core.errors import InputError
from batchctl.providers.anthropic_format import AnthropicFormat
from batchctl.providers.base import BatchProvider, RequestFormat, SyncProvider
from batchctl.providers.openai_format import OpenAIFormat

FORMATS: dict[str, RequestFormat] = {form.name: form for form in (AnthropicFormat(), OpenAIFormat())}
NAMES: tuple[str, ...] = tuple(FORMATS)


class _Adapter(BatchProvider, SyncProvider, Protocol):
    """Both lanes in one object."""


def _anthropic(base_url: str | None, api_key: str | None) -> _Adapter:
    from batchctl.providers.anthropic import AnthropicProvider

    return AnthropicProvider(base_url=base_url, api_key=api_key)


def _openai(base_url: str | None, api_key: str | None) -> _Adapter:
    from batchctl.providers.openai import OpenAIProvider

    return OpenAIProvider(base_url=base_url, api_key=api_key)


_ADAPTERS: dict[str, Callable[[str | None, str | None], _Adapter]] = {"anthropic": _anthropic, "openai": _openai}


def request_format(name: str) -> RequestFormat:
    """The request format of a provider.

    Raises:
        InputError: no provider of that name.
    """
    if name not in FORMATS:
        raise InputError(f"no provider {name!r}", hint=f"one of {', '.join(NAMES)}")
    return FORMATS[name]


def batch_provider(name: str, *, base_url: str | None = None, api_key: str | None = None) -> BatchProvider:
    """The batch lane of a provider.

    Args:
        name: the provider's name.
        base_url: where to send; None leaves it to the SDK's own variable.
        api_key: None takes it from the SDK's own variable.

    Raises:
        InputError: no provider of that name.
        InputError: no key.
    """
    request_format(name)
    return _ADAPTERS[name](base_url, api_key)


def sync_provider(name: str, *, base_url: str | None = None, api_key: str | None = None) -> SyncProvider:
    """The sync lane of a provider; arguments and errors as for `batch_provider`."""
    request_format(name)
    return _ADAPTERS[name](base_url, api_key)
