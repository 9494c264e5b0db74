"""What handlers and the gate agree on: replies, downloads, and reading bodies within a limit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import web

from batchctl.simulator.codec import decode, encode
from batchctl.simulator.errors import ApiError


@dataclass(slots=True)
class Reply:
    """A small answer; `on_sent` learns whether the client could have received it."""

    body: bytes
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content_type: str = "application/json"
    on_sent: Callable[[bool], None] | None = None


@dataclass(slots=True)
class Download:
    """A blob to be streamed."""

    blob: str
    content_type: str


Handler = Callable[[web.Request], Awaitable[Reply | Download]]


def json_reply(value: Any) -> Reply:
    """Answer with a JSON value."""
    return Reply(encode(value))


async def read_body(request: web.Request, most: int) -> bytes:
    """Read a body; one that is too large is refused with 413."""
    if (request.content_length or 0) > most:
        raise too_large()
    data = await request.read()
    if len(data) > most:
        raise too_large()
    return data


def too_large() -> ApiError:
    """Refuse a body for its size."""
    return ApiError(413, "Request exceeds the maximum size")


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a body that must be a JSON object."""
    try:
        value = decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(400, f"The request body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, "The request body must be a JSON object")
    return value


def page_size(request: web.Request, default: int, most: int) -> int:
    """Read the `limit` of a list call."""
    given = request.query.get("limit", str(default))
    if not given.isdigit() or not 1 <= int(given) <= most:
        raise ApiError(400, f"limit: Input should be between 1 and {most}", param="limit")
    return int(given)
